"""Thetas as the service takes them."""

import base64
import struct
from collections.abc import Sequence
from typing import Any, Protocol, cast

__all__ = ["Theta", "Vectors", "encode"]


class Buffer(Protocol):
    """Numbers in memory, in a row or in rows of equal length."""

    def __buffer__(self, flags: int, /) -> memoryview:
        """Their memory."""
        ...


Theta = str | int | Sequence[float] | Sequence[Sequence[float]] | Sequence[str] | Buffer


Vectors = Sequence[Sequence[float]] | Buffer


def encode(theta: Any, name: str = "theta") -> Any:
    """Numbers in memory as base64 of float32; all else as it is."""
    if isinstance(theta, str | int | list | tuple):
        return cast("Any", theta)
    try:
        view = memoryview(theta)
    except TypeError:
        raise ValueError(f"{name} must be a name, an id, numbers or a buffer of numbers, not {theta!r}") from None
    if view.format not in ("f", "d", "<f", "<d"):
        raise ValueError(f"{name} must hold float32 or float64, not numbers of format {view.format!r}")
    flat = view.tobytes()
    if view.format.endswith("d"):
        count = len(flat) // 8
        flat = struct.pack(f"<{count}f", *struct.unpack(f"<{count}d", flat))
    return {"float32": base64.b64encode(flat).decode("ascii"), "shape": list(view.shape or ())}
