"""Samplers by the names they have on the command line."""

from lazygumbel.methods import Bounded, Exhaustive, FixedCutoff, LazyGumbel, TopKOnly

__all__ = ["ordered_sampler_of", "sampler_of"]


def sampler_of(method: str | None, k: int | None) -> Exhaustive | LazyGumbel | FixedCutoff | Bounded | TopKOnly | None:
    """The sampler of this name with a head of this size; None for the default."""
    if method in ("exhaustive", "bounded") and k is not None:
        raise ValueError(f"k: the {method} method has no head of a given size")
    match method:
        case None:
            return None if k is None else FixedCutoff(k=k)
        case "exhaustive":
            return Exhaustive()
        case "bounded":
            return Bounded()
        case "lazy":
            return LazyGumbel(k=k)
        case "fixed-cutoff":
            return FixedCutoff(k=k)
        case "top-k":
            return TopKOnly(k=100 if k is None else k)
        case _:
            known = "exhaustive, bounded, lazy, fixed-cutoff, top-k"
            raise ValueError(f"method: {method!r} is none of {known}")


def ordered_sampler_of(method: str | None, k: int | None) -> Exhaustive | LazyGumbel | Bounded | None:
    """Likewise, for draws without replacement."""
    chosen = sampler_of("lazy" if method is None and k is not None else method, k)
    if isinstance(chosen, FixedCutoff | TopKOnly):
        raise ValueError(f"method: {method!r} cannot draw without replacement; exhaustive, bounded and lazy can")
    return chosen
