"""Samplers by the names they have on the command line."""

from lazygumbel.methods import FixedCutoff, OrderedSampler, Sampler
from lazygumbel.methods.named import method_named, names_of_methods

__all__ = ["SAMPLERS", "ordered_sampler_of", "sampler_of"]

SAMPLERS = names_of_methods(Sampler)


def sampler_of(method: str | None, k: int | None) -> Sampler | None:
    """The sampler of this name with a head of this size; None for the default."""
    if method is None:
        return None if k is None else FixedCutoff(k=k)
    if method not in SAMPLERS:
        raise ValueError(f"method: {method!r} is none of {', '.join(SAMPLERS)}")
    return method_named(method, **({} if k is None else {"k": k}))


def ordered_sampler_of(method: str | None, k: int | None) -> OrderedSampler | None:
    """Likewise, for draws without replacement."""
    chosen = sampler_of("lazy" if method is None and k is not None else method, k)
    if chosen is not None and not isinstance(chosen, OrderedSampler):
        able = ", ".join(names_of_methods(OrderedSampler))
        raise ValueError(f"method: {method!r} cannot draw without replacement, as {able} can")
    return chosen
