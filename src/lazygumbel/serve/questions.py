"""`Question`: one checked request for an answer of the model, and the reading of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from lazygumbel._support.arrays import Floats, Ints
from lazygumbel._support.checks import check_number
from lazygumbel.serve.fields import FIELDS
from lazygumbel.serve.limits import Limits
from lazygumbel.serve.methods import method_of
from lazygumbel.serve.served import Served
from lazygumbel.serve.thetas import Thetas, from_bytes, from_json, ids_of

__all__ = ["Function", "Question", "Settings", "read_binary", "read_json"]


class Settings(NamedTuple):
    """What two questions must have in common to be asked in one call; hashable."""

    verb: str
    temperature: float
    size: int
    k: int
    method: Any
    """An object of the library, or None for the default."""
    rel_err: float | None
    log_prob: bool
    sample_shape: tuple[int, ...]
    """Of the ids of `log-prob`."""


class Function(NamedTuple):
    """A function of rows that is zero but at a few."""

    ids: Ints
    """Sorted and distinct."""
    values: Floats

    def __call__(self, ids: Ints) -> Floats:
        """The values at ids of shape (m,), (m,)."""
        if not len(self.ids):
            return np.zeros(len(ids))
        place = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return np.where(self.ids[place] == ids, self.values[place], 0.0)


@dataclass(frozen=True, eq=False)
class Question:
    """A request that was checked and can be asked."""

    served: Served
    settings: Settings
    thetas: Thetas
    exclude: tuple[Ints, ...] | None
    """Ids to leave out, for each theta."""
    ids: Ints | None
    """Of `log-prob`: sample shape + (B,); of `audit`: (m,)."""
    of: Function | None
    seed: int | None

    @property
    def size(self) -> int:
        """Number of thetas."""
        return len(self.thetas.vectors)


def read_json(verb: str, takes: tuple[str, ...], given: Mapping[str, Any], served: Served, limits: Limits) -> Question:
    """The question in a JSON object; `ValueError` in the library's words when there is none."""
    values = _values(verb, takes, given)
    return _question(verb, values, from_json(given["theta"], served, limits), served, limits)


def read_binary(
    verb: str, takes: tuple[str, ...], body: bytes, query: Mapping[str, str], served: Served, limits: Limits
) -> Question:
    """The question whose thetas are the body, as float32, and whose other arguments stand in the query."""
    given: dict[str, Any] = {"theta": body}
    for name, text in query.items():
        field = FIELDS.get(name) if name in takes else None
        if field is None or field.parse is None:
            raise ValueError(f"{verb} takes no {name!r} in the query")
        try:
            given[name] = field.parse(text)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    values = _values(verb, takes, given)
    return _question(verb, values, from_bytes(body, served, limits), served, limits)


def _values(verb: str, takes: tuple[str, ...], given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, each by its own check."""
    if "theta" not in given:
        raise ValueError(f"{verb} needs theta")
    for name in given:
        if name not in takes:
            raise ValueError(f"{verb} takes no {name!r}; it takes {', '.join(takes)}")
    return {name: FIELDS[name].read(value) for name, value in given.items() if name != "theta"}


def _question(verb: str, values: dict[str, Any], thetas: Thetas, served: Served, limits: Limits) -> Question:
    batch = len(thetas.vectors)
    size = limits.allow(values.get("size", 1), "size", "size")
    k = limits.allow(values.get("k", 10), "size", "k")
    ids = _ids_asked(verb, values, thetas, served)
    width = {"top-k": k, "expectation": 1 if "of" in values else served.model.features.d}.get(verb, size)
    limits.allow(width * batch if ids is None else ids.size, "answers", "the length of the answer")
    name, rel_err = values.get("method"), values.get("rel_err")
    method = method_of(name, served.index_type, delta=values.get("delta"), rel_err=None if name is None else rel_err)
    settings = Settings(
        verb,
        values.get("temperature", 1.0),
        size,
        k,
        method,
        rel_err if name is None else None,
        values.get("log_prob", False),
        () if ids is None else ids.shape[:-1],
    )
    return Question(
        served,
        settings,
        thetas,
        _exclusions(values.get("exclude"), thetas, served, limits),
        ids,
        _function(values["of"], served) if "of" in values else None,
        values.get("seed"),
    )


def _ids_asked(verb: str, values: dict[str, Any], thetas: Thetas, served: Served) -> Ints | None:
    if "ids" not in values:
        if verb == "log-prob":
            raise ValueError("log-prob needs ids")
        return None
    if thetas.single or verb == "audit":
        found = ids_of(values["ids"], "ids", served)
        return found if verb == "audit" else found[:, None]
    batch = len(thetas.vectors)
    given: list[Any] = values["ids"]
    rows = cast("list[list[Any]]", given if given and all(isinstance(row, list) for row in given) else [given])
    if any(len(row) != batch for row in rows):
        raise ValueError(f"ids must be lists that hold one id for each of the {batch} thetas")
    found = np.array([ids_of(row, "ids", served) for row in rows])
    return found[0] if rows[0] is given else found


def _exclusions(given: list[Any] | None, thetas: Thetas, served: Served, limits: Limits) -> tuple[Ints, ...] | None:
    if not given:
        return None
    batch, n = len(thetas.vectors), served.model.features.n
    per_theta = any(isinstance(item, list) for item in given)
    if per_theta and thetas.single:
        raise ValueError("exclude must be one list of row ids or names for a single theta")
    if per_theta and len(given) != batch:
        raise ValueError(f"exclude has {len(given)} entries, but there are {batch} thetas")
    lists = cast("list[Any]", given if per_theta else [given])
    count = sum(len(cast("list[Any]", each)) for each in lists if isinstance(each, list))
    limits.allow(count, "exclude", "the number of rows to exclude")
    excluded = [np.unique(ids_of(each, "exclude", served)) for each in lists]
    if any(len(ids) == n for ids in excluded):
        raise ValueError("exclude leaves no row to draw from")
    return tuple(excluded) if per_theta else tuple(excluded * batch)


def _function(given: Any, served: Served) -> Function:
    if not isinstance(given, dict) or set(cast("dict[str, Any]", given)) != {"ids", "values"}:
        raise ValueError("of must be an object that holds ids and values")
    held = cast("dict[str, Any]", given)
    ids, values = ids_of(held["ids"], "of.ids", served), held["values"]
    if not isinstance(values, list) or len(cast("list[Any]", values)) != len(ids):
        raise ValueError(f"of.values must be a list of {len(ids)} numbers, one for each id")
    checked = np.array([check_number(value, "of.values") for value in cast("list[Any]", values)], dtype=np.float64)
    kept, first = np.unique(ids, return_index=True)
    if len(kept) != len(ids):
        raise ValueError("of.ids must be distinct")
    return Function(kept, checked[first])
