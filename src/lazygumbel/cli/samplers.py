"""Samplers by the names they have on the command line."""

from collections.abc import Callable

from lazygumbel.methods import Bounded, Exhaustive, FixedCutoff, LazyGumbel, OrderedSampler, Sampler, TopKOnly

__all__ = ["ordered_sampler_of", "sampler_of"]


def sampler_of(method: str | None, k: int | None) -> Sampler | None:
    """The sampler of this name with a head of this size; None for the default."""
    if method is None:
        return None if k is None else FixedCutoff(k=k)
    samplers: dict[str, Callable[[], Sampler]] = {
        "exhaustive": Exhaustive,
        "bounded": Bounded,
        "lazy": lambda: LazyGumbel(k=k),
        "fixed-cutoff": lambda: FixedCutoff(k=k),
        "top-k": lambda: TopKOnly(k=100 if k is None else k),
    }
    if method not in samplers:
        raise ValueError(f"method: {method!r} is none of {', '.join(samplers)}")
    if method in ("exhaustive", "bounded") and k is not None:
        raise ValueError(f"k: the {method} method has no head of a given size")
    return samplers[method]()


def ordered_sampler_of(method: str | None, k: int | None) -> OrderedSampler | None:
    """Likewise, for draws without replacement."""
    chosen = sampler_of("lazy" if method is None and k is not None else method, k)
    if chosen is not None and not isinstance(chosen, OrderedSampler):
        raise ValueError(f"method: {method!r} cannot draw without replacement; exhaustive, bounded and lazy can")
    return chosen
