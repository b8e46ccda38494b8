"""Tables of other libraries, which are not needed otherwise."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import numpy.typing as npt

from lazygumbel._support.extras import require

__all__ = ["make_frame"]

_LIBRARIES = "pandas", "polars"


def make_frame(columns: Mapping[str, npt.NDArray[Any]], library: str | None) -> Any:
    """A DataFrame of these columns: of the library named, or of the first that is installed."""
    if library is None:
        library = next((name for name in _LIBRARIES if find_spec(name) is not None), _LIBRARIES[0])
    if library not in _LIBRARIES:
        raise ValueError(f"library must be one of {', '.join(_LIBRARIES)}, not {library!r}")
    made: Any = require(library, extra="frames")
    return made.DataFrame({name: _held(values, library) for name, values in columns.items()})


def _held(values: npt.NDArray[Any], library: str) -> Any:
    """Strings in the way that each library takes them."""
    return values.tolist() if library == "polars" and values.dtype.kind in "UO" else values
