"""How kernels are compiled: on first use, kept on disk, without the interpreter's lock.

No `parallel=True`: two Python threads in a parallel kernel under Numba's workqueue layer abort the process; parallelism
is the caller's. Not blanket fastmath either: it makes `isfinite(nan)` true.
"""

from typing import Any

from numba import njit

__all__ = ["exact_kernel", "helper", "kernel"]

kernel: Any = njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
"""Sums may be reordered, products and sums fused."""
exact_kernel: Any = njit(cache=True, nogil=True, error_model="numpy")
"""The same bits on every processor."""
helper: Any = njit(cache=True, nogil=True, error_model="numpy", forceinline=True, _nrt=False)
"""A part of a kernel, which allocates nothing: arrays are not counted as they are handed on. With counts, an atomic
operation for each array of each named tuple, a proposal took twice the time."""
