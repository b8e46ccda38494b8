"""Random numbers and exponentials for other kernels, in loops without a call: the compiler does several at once."""

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["exp_all", "fill_exponentials", "fill_uniforms", "uniform"]

_EXACT: set[str] = set()
_STEP, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SQRT_HALF = np.int64(0x3FE6A09E667F3BCD)
"""The bits of the square root of one half."""


@njit(cache=True, nogil=True, fastmath=_EXACT)
def uniform(seed: np.uint64, j: int) -> float:
    """The j-th number of SplitMix64 as one between zero and one, neither included."""
    z = seed + np.uint64(j + 1) * _STEP
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    z = z ^ (z >> np.uint64(31))
    return (np.float64(np.int64(z >> np.uint64(12))) + 0.5) * 2.0**-52


@njit(cache=True, nogil=True, fastmath=_EXACT)
def fill_uniforms(seed: np.uint64, start: int, out: npt.NDArray[np.float64]) -> None:
    """Numbers from the one called `start` on."""
    for j in range(out.shape[0]):
        out[j] = uniform(seed, start + j)


@njit(cache=True, nogil=True, fastmath=_EXACT, error_model="numpy")  # no check for division by zero
def fill_exponentials(seed: np.uint64, start: int, out: npt.NDArray[np.float64], work: npt.NDArray[np.int64]) -> None:
    """Minus the logarithms of numbers from the one called `start` on, to 1e-11."""
    fill_uniforms(seed, start, out)
    bits = out.view(np.int64)
    # u = 2^e m, with m between the square roots of one half and of two; log m by the series of atanh.
    for j in range(out.shape[0]):
        work[j] = (bits[j] - _SQRT_HALF) >> np.int64(52)
    for j in range(out.shape[0]):
        bits[j] -= work[j] << np.int64(52)
    for j in range(out.shape[0]):
        f = (out[j] - 1.0) / (out[j] + 1.0)
        s = f * f
        series = 1.0 + s * (1 / 3 + s * (1 / 5 + s * (1 / 7 + s * (1 / 9 + s * (1 / 11 + s * (1 / 13))))))
        out[j] = -(np.float64(work[j]) * 0.6931471805599453 + 2.0 * f * series)


@njit(cache=True, nogil=True, fastmath=_EXACT)
def exp_all(
    found: npt.NDArray[np.float32],
    m: int,
    scale: float,
    shift: float,
    out: npt.NDArray[np.float64],
    work: npt.NDArray[np.float64],
) -> None:
    """exp(found * scale - shift), to 1e-9 of it."""
    out_bits, work_bits = out.view(np.int64), work.view(np.int64)
    for j in range(m):
        x = min(max(found[j] * scale - shift, -700.0), 700.0)
        turned = x * 1.4426950408889634 + 6755399441055744.0  # the last bits of the sum are the nearest whole number
        work[j] = turned
        r = x - (turned - 6755399441055744.0) * 0.6931471805599453
        tail = r * (1 / 120 + r * (1 / 720 + r * (1 / 5040 + r * (1 / 40320))))
        out[j] = 1.0 + r * (1.0 + r * (0.5 + r * (1 / 6 + r * (1 / 24 + tail))))
    for j in range(m):
        out_bits[j] += work_bits[j] << 52
