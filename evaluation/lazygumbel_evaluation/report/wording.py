"""Numbers as words, and plain data for JSON."""

from math import isfinite
from typing import Any, cast

import numpy as np
import numpy.typing as npt

__all__ = ["duration", "instead_of", "mean_sd", "number", "plain", "tail_of", "times"]


_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float) -> str:
    """Four significant digits, all digits of what exceeds a thousand, powers of ten where zeros would be counted."""
    if isinstance(value, int):
        return f"{value:,}"
    size = abs(value)
    if not isfinite(value) or size == 0 or 1e-3 <= size < 1e9:
        return f"{value:,.0f}" if size >= 1000 else f"{value + 0.0:.4g}"
    mantissa, exponent = f"{value:.3e}".split("e")
    power = f"10{str(int(exponent)).translate(_SUPERSCRIPTS)}"
    mantissa = mantissa.rstrip("0").rstrip(".")
    return {"1": power, "-1": f"-{power}"}.get(mantissa, f"{mantissa}\N{MULTIPLICATION SIGN}{power}")


def times(ratio: float) -> str:
    """A speed-up."""
    return f"{ratio:,.2f}x" if ratio < 10 else f"{ratio:,.1f}x" if ratio < 100 else f"{ratio:,.0f}x"


def duration(seconds: float) -> str:
    """A time, in the unit that suits it."""
    if seconds < 1e-3:
        return f"{1e6 * seconds:.3g} µs"
    return f"{1e3 * seconds:.3g} ms" if seconds < 1 else f"{seconds:,.3g} s"


def mean_sd(values: npt.ArrayLike) -> str:
    """Mean ± standard deviation, as the report defines it."""
    array = np.asarray(values, dtype=np.float64)
    return f"{array.mean():.2g} ± {array.std(ddof=1) if len(array) > 1 else 0.0:.2g}"


def tail_of(values: npt.ArrayLike) -> list[str]:
    """Mean, 95% quantile and maximum: of an error, the mean alone says little."""
    array = np.asarray(values, dtype=np.float64)
    return [f"{value:.2g}" for value in (array.mean(), np.quantile(array, 0.95), array.max())]


def instead_of(done: int, paper: int) -> str:
    """`done`, and the paper's number where it is another."""
    return f"{done:,}" if done == paper else f"{done:,} (the paper: {paper:,})"


def plain(value: Any) -> Any:
    """The same in Python's own numbers, lists and dictionaries, as JSON takes it."""
    if isinstance(value, np.ndarray | np.generic):
        return cast("Any", value.tolist())
    if isinstance(value, dict):
        return {str(key): plain(held) for key, held in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [plain(held) for held in cast("list[Any]", value)]
    return value
