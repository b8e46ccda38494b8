"""What a method is called and how it looks: by the method, wherever it is shown, never by its place in a list."""

from typing import NamedTuple

__all__ = ["SOFTMAX", "STYLES", "Style", "key", "label", "setting"]


class Style(NamedTuple):
    """Colour, marker and dashes differ from method to method, for eyes that do not tell the colours apart."""

    role: str
    """Whose method it is, or what it is for."""
    colour: str
    marker: str
    dashes: tuple[float, ...] = ()
    """Lengths drawn and left out in turn, in line widths; none for an unbroken line."""


SOFTMAX = "softmax"
"""The key of true probabilities."""
STYLES = {
    "Exhaustive": Style("brute force", "#33373d", "s"),
    "Bounded": Style("ours", "#12539b", "o"),
    "Anchored": Style("ours", "#0f9bb4", "o", (5.0, 2.0)),
    "FixedCutoff": Style("the paper's", "#d74300", "^", (5.0, 1.5, 1.0, 1.5)),
    "UniformTail": Style("the paper's", "#d74300", "v", (5.0, 1.5, 1.0, 1.5)),
    "LazyGumbel": Style("the paper's", "#9d8c3a", "P", (8.0, 2.0)),
    "TopKOnly": Style("no tail", "#d16ba5", "X", (2.5, 1.5)),
    "Frozen": Style("of 2016", "#1d955f", "D", (1.0, 1.4)),
    SOFTMAX: Style("exact", "#a9adb3", "_"),
}
"""By the name of the class."""


def key(method: object) -> str:
    """Of the style of a method."""
    return type(method).__name__


def label(method: object, *knobs: str) -> str:
    """What a method is called: the class, whose it is, and those of its knobs that are named."""
    said = f"{key(method)} ({STYLES[key(method)].role})"
    return ", ".join(part for part in (said, setting(method, *knobs)) if part)


def setting(method: object, *knobs: str) -> str:
    """The knobs of a method that are set: "k = 633, l = 6,330"."""
    held = {knob: getattr(method, knob) for knob in knobs}
    return ", ".join(
        f"{knob} = {value:,}" if isinstance(value, int) else f"{knob} = {value:g}"
        for knob, value in held.items()
        if value is not None
    )
