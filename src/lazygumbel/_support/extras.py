"""Optional dependencies fail at the door, with the pip line that cures it."""

from importlib import import_module
from types import ModuleType

__all__ = ["require"]


def require(module: str, *, extra: str) -> ModuleType:
    """Import `module`, or raise an `ImportError` that names the extra to install."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{module} is needed here and is not installed. Install it with: pip install 'lazygumbel[{extra}]'"
        ) from error
