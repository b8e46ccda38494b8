from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

def njit(
    *,
    cache: bool = ...,
    nogil: bool = ...,
    fastmath: set[str] = ...,
    error_model: str = ...,
    forceinline: bool = ...,
    _nrt: bool = ...,
) -> Callable[[F], F]: ...
