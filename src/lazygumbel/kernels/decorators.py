"""How kernels are compiled: on first use, kept on disk, without the interpreter's lock.

No `parallel=True`: two Python threads in a parallel kernel under Numba's workqueue layer abort the process; parallelism
is the caller's. Not blanket fastmath either: it makes `isfinite(nan)` true.
"""

from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any
from warnings import warn

from numba import njit

from lazygumbel.kernels.keeping import drop_stale

__all__ = ["door", "exact_kernel", "helper", "kernel", "maker", "part"]


def _can_keep() -> bool:
    """Whether Numba finds a place for compiled code: NUMBA_CACHE_DIR, beside the package, or the user's own folder."""
    try:
        probe: Any = njit(cache=True)(_can_keep)
        drop_stale(Path(probe.stats.cache_path))
    except (RuntimeError, OSError):
        warn(
            "compiled code cannot be kept: neither the folder of lazygumbel nor the user's cache can be written to. It "
            "is compiled anew in every process, which takes some seconds; NUMBA_CACHE_DIR may name another folder",
            stacklevel=2,
        )
        return False
    return True


_KEPT = _can_keep()

# For every array that a kernel returns, Numba looks up the class `ndarray` by a Python function, and takes for granted
# that it does: Ctrl-C at that moment is a SystemError, or ends the process. A cache that is written in C is never
# interrupted. Kernels return no named tuples for the same reason: to make one takes Python code, too.
_boxing: Any = import_module("numba.core.serialize")
_boxing._numba_unpickle = lru_cache(maxsize=1024)(_boxing._numba_unpickle)

kernel: Any = njit(cache=_KEPT, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
"""Sums may be reordered, products and sums fused."""
exact_kernel: Any = njit(cache=_KEPT, nogil=True, error_model="numpy")
"""The same bits on every processor."""
_for_kernels: Any = {"error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
part: Any = njit(_nrt=False, **_for_kernels)
"""A part of a kernel that neither allocates nor returns arrays, the same bits on every processor. Python cannot call
it: to compile what unpacks named tuples takes longer than most parts. Arrays are not counted as they are handed on:
with counts, a branch or an atomic operation for each array of each named tuple at every call, a scan that two threads
share took a third more."""
maker: Any = njit(**_for_kernels)
"""A part that allocates, or returns arrays."""
helper: Any = njit(forceinline=True, _nrt=False, **_for_kernels)
"""A part that is laid into its callers."""


def door(inner: Any) -> Any:
    """A part as a kernel that Python can call, compiled when it first does."""
    return exact_kernel(inner.py_func)
