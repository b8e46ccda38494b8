"""The arrays of a saved `PartitionIndex`, checked against its settings and each other before any kernel sees them.

Kernels read by offsets, cells and positions without looking at the ends of arrays: what is wrong here would be read out
of bounds there. That codes and bytes are those of the rows is not checked: it would take a build.
"""

from math import isfinite
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Ints
from lazygumbel._support.persist import Reader
from lazygumbel.indexes.partition.basis import LARGEST_STRETCH
from lazygumbel.indexes.partition.calibration import Calibration
from lazygumbel.indexes.partition.cells import AXES
from lazygumbel.indexes.partition.codebook import COORDINATES
from lazygumbel.indexes.partition.sketch import Layout, codes_of
from lazygumbel.kernels.types import BLOCK, GAINS, GROUP, WORDS
from lazygumbel.rows.features import Features

__all__ = ["check_saved"]

_LARGEST_EXPONENT = 100
_TURNED = 4
"""Vectors that tell whether matrices keep inner products."""
_TURNS = "coder_turn_rows", "coder_turn_thetas"


def check_saved(reader: Reader, features: Features) -> None:
    """Refuse a model whose arrays are not what a save writes."""
    coordinates = _check_settings(reader)
    offsets = _check_cells(reader, features)
    _check_coder(reader, features.d, coordinates)
    _check_codes(reader, Layout.of(offsets), features.d, coordinates)
    _check_bytes(reader, features)


def _check_settings(reader: Reader) -> tuple[int, int]:
    settings: dict[str, Any] = reader.config["index"]
    coordinates = _whole_list(settings.get("coordinates"))
    known = len(coordinates) == 2 and all(c in COORDINATES for c in coordinates)
    reader.demand(known, f"coordinates {coordinates!r} are none that a code may have")
    cells: Any = settings.get("cells")
    reader.demand(type(cells) is int and 1 <= cells <= reader.config["n"], f"{cells!r} is no number of cells")
    saved: Any = settings.get("calibration")
    reader.demand(saved is None or _is_calibration(saved), "its calibration is not one that was accepted")
    return coordinates[0], coordinates[1]


def _is_calibration(saved: Any) -> bool:
    if not isinstance(saved, dict):
        return False
    held = cast("dict[str, Any]", saved)
    if set(held) != set(Calibration.__dataclass_fields__) or type(held["thetas"]) is not int:
        return False
    low, high = _finite_list(held["low"]), _finite_list(held["high"])
    others = _finite_list([held[name] for name in ("far", "tv", "mean", "largest", "upper", "speed_up")])
    if (len(low), len(high), len(others)) != (3, 3, 6):
        return False
    ordered = all(a <= b for a, b in zip(low, high, strict=True)) and 0 <= held["mean"] <= held["largest"]
    return ordered and held["far"] > 0 and held["thetas"] > 0 and Calibration.from_dict(held).accepted


def _whole_list(value: Any) -> list[int]:
    """The value if it is a list of whole numbers; else nothing."""
    held = cast("list[Any]", value) if isinstance(value, list) else []
    return held if all(type(number) is int for number in held) else []


def _finite_list(value: Any) -> list[float]:
    held = cast("list[Any]", value) if isinstance(value, list) else []
    return held if all(isinstance(number, float) and isfinite(number) for number in held) else []


def _check_cells(reader: Reader, features: Features) -> Ints:
    cells, d = reader.config["index"]["cells"], features.d
    reader.demand(features.order is not None, "the model has no file order.npy; its rows are not stored cell by cell")
    reader.demand(features.stored.dtype == np.float32, f"rows.npy holds {features.stored.dtype}, not float32")
    offsets = reader.array("offsets", np.int64, (cells + 1,))
    ends = offsets[0] == 0 and offsets[-1] == features.n
    reader.demand(ends and (offsets[1:] > offsets[:-1]).all(), "offsets.npy does not divide the rows into cells")
    _demand_within(reader, "means", (cells, d), np.float32, 1.001 * features.max_norm + 1e-30)
    _demand_within(reader, "residual_axes", (min(AXES, d), d), np.float32, 2.0)
    around = reader.array("residual_around", np.float64, (1,))[0]
    reader.demand(0 < around <= 1, "residual_around.npy is not a variance")
    variances = reader.array("cell_variances", np.float64, (cells,))
    reader.demand((variances > 0).all() and np.isfinite(variances).all(), "cell_variances.npy is not of variances")
    return offsets


def _check_coder(reader: Reader, d: int, coordinates: tuple[int, int]) -> None:
    for name in _TURNS:
        _demand_within(reader, name, (d, d), np.float32, LARGEST_STRETCH)
    for name, width in zip(("coder_first", "coder_second"), coordinates, strict=True):
        _demand_within(reader, name, (WORDS, width), np.float32, 100.0)
    rows, thetas = (reader.array(name) for name in _TURNS)
    vectors = np.random.default_rng(0).standard_normal((d, _TURNED), dtype=np.float32)
    off = np.linalg.norm(thetas.T @ (rows @ vectors) - vectors, axis=0) / np.linalg.norm(vectors, axis=0)
    reader.demand(off.max() < 1e-3, "coder_turn_rows.npy and coder_turn_thetas.npy do not keep inner products")


def _check_codes(reader: Reader, layout: Layout, d: int, coordinates: tuple[int, int]) -> None:
    cells, blocks = len(layout.offsets) - 1, layout.blocks
    for name, width in zip(("codes", "more"), coordinates, strict=True):
        reader.array(name, np.uint8, (blocks, 3 * codes_of(d, width) // 4 + GAINS, BLOCK))
    widths = reader.array("widths", np.float32, (2, blocks * (BLOCK // GROUP)))
    reader.demand((widths >= 0).all() and np.isfinite(widths).all(), "widths.npy is not of widths")
    exponents = reader.array("exponents", np.uint8, (cells,))
    reader.demand(exponents.max() <= _LARGEST_EXPONENT, "exponents.npy is not of exponents")
    units = reader.array("code_units", np.float64, (2,))
    reader.demand(units[0] > 0 and units[1] >= 0 and np.isfinite(units).all(), "code_units.npy is not of units")


def _check_bytes(reader: Reader, features: Features) -> None:
    n, d = features.n, features.d
    reader.array("bytes", np.int8, (n, d))
    steps = reader.array("byte_steps", np.float32, (n,))
    reader.demand((steps >= 0).all() and np.isfinite(steps).all(), "byte_steps.npy is not of steps")
    error = reader.array("byte_error", np.float64, (1,))[0]
    reader.demand(0 <= error <= d + 1, "byte_error.npy is not an error of rounding")


def _demand_within(reader: Reader, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike, limit: float) -> None:
    array = reader.array(name, dtype, shape)
    reader.demand(np.abs(array).max() <= limit, f"{name}.npy has entries that are not finite, or too large")
