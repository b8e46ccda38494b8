"""Changes of rows: what each route takes, and the reading of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from lazygumbel._support.arrays import Ints, Vectors
from lazygumbel.serve.fields import IDS, split_list
from lazygumbel.serve.limits import Limits
from lazygumbel.serve.served import Model, Served
from lazygumbel.serve.thetas import BASE64, floats_of, ids_of, numbers_of

__all__ = ["KINDS", "ChangeRequest", "Kind", "read_change", "read_change_of_bytes"]


_FORMS = "rows must be a list of lists of numbers or {'float32': base64 of little-endian float32}"


class ChangeRequest(NamedTuple):
    """A change that was read; the library checks the rest of it when it is made."""

    kind: str
    ids: Ints | None
    rows: npt.NDArray[Any] | None
    names: list[str] | None

    def make(self, model: Model) -> Ints:
        """The ids of the rows that came, went, or became others."""
        if self.kind == "add":
            return model.add(np.asarray(self.rows), self.names)
        ids = np.asarray(self.ids)
        if self.kind == "remove":
            model.remove(ids)
        else:
            model.replace(ids, np.asarray(self.rows))
        return ids


@dataclass(frozen=True)
class Kind:
    """One route."""

    name: str
    summary: str
    takes: tuple[str, ...]
    needs: tuple[str, ...]
    example: dict[str, Any]


FIELDS: dict[str, dict[str, Any]] = {
    "rows": {
        "oneOf": [
            {"type": "array", "items": {"type": "array", "items": {"type": "number"}, "minItems": 1}, "minItems": 1},
            BASE64,
        ],
        "description": "Rows of d numbers: lists of them, or little-endian float32 in base64.",
    },
    "names": {
        "type": "array",
        "items": {"type": "string"},
        "minItems": 1,
        "description": "Of each row; needed where the other rows have names, and refused where they have none.",
    },
    "ids": {**IDS, "minItems": 1, "description": "Ids or names of rows, each once."},
}
_ALL = (
    Kind(
        "add",
        "Add rows, all or none of them; they are on disk when this is answered.",
        ("rows", "names"),
        ("rows",),
        {"rows": [[0.25, -0.5, 1.0]], "names": ["brook"]},
    ),
    Kind(
        "remove",
        "Remove rows, all or none of them; requests that come after the answer do not see them.",
        ("ids",),
        ("ids",),
        {"ids": ["brook", 17]},
    ),
    Kind(
        "replace",
        "Put other rows under ids that there are, all or none of them; names stay.",
        ("ids", "rows"),
        ("ids", "rows"),
        {"ids": ["brook"], "rows": [[0.5, -0.25, 1.0]]},
    ),
)
KINDS: dict[str, Kind] = {kind.name: kind for kind in _ALL}


def read_change(kind: Kind, given: Mapping[str, Any], served: Served, limits: Limits) -> ChangeRequest:
    """The change in a JSON object; `ValueError` when there is none."""
    for name in kind.needs:
        if name not in given:
            raise ValueError(f"{kind.name} needs {name}")
    for name in given:
        if name not in kind.takes:
            raise ValueError(f"{kind.name} takes no {name!r}; it takes {', '.join(kind.takes)}")
    rows = _rows(given["rows"], served.model.features.d) if "rows" in given else None
    return _change(kind, given, rows, served, limits)


def read_change_of_bytes(
    kind: Kind, body: bytes, query: Mapping[str, str], served: Served, limits: Limits
) -> ChangeRequest:
    """The change whose rows are the body, as float32, and whose ids or names stand in the query."""
    for name in query:
        if name not in kind.takes or name == "rows":
            raise ValueError(f"{kind.name} takes no {name!r} in the query")
    names = {"names": query["names"].split(",")} if "names" in query else {}
    ids = {"ids": split_list(query["ids"])} if "ids" in query else {}
    if "ids" in kind.needs and not ids:
        raise ValueError(f"{kind.name} needs ids")
    return _change(kind, names | ids, _of_bytes(body, None, served.model.features.d), served, limits)


def _change(
    kind: Kind, given: Mapping[str, Any], rows: npt.NDArray[Any] | None, served: Served, limits: Limits
) -> ChangeRequest:
    ids = ids_of(given["ids"], "ids", served) if "ids" in given else None
    names = given.get("names")
    if names is not None and not isinstance(names, list):
        raise ValueError(f"names must be a list of one for each row, not {str(names)[:60]!r}")
    count = len(rows) if rows is not None else 0 if ids is None else len(ids)
    limits.allow(max(count, 0 if ids is None else len(ids)), "answers", "the number of rows")
    if not count:
        raise ValueError(f"{kind.name} needs at least one row")
    return ChangeRequest(kind.name, ids, rows, names)


def _rows(value: Any, d: int) -> npt.NDArray[Any]:
    if isinstance(value, dict):
        body, shape = floats_of(cast("dict[str, Any]", value), "rows", _FORMS)
        return _of_bytes(body, shape, d)
    if not isinstance(value, list):
        raise ValueError(f"{_FORMS}, not {str(value)[:60]!r}")
    return numbers_of(cast("list[Any]", value), _FORMS)


def _of_bytes(body: bytes, shape: list[int] | None, d: int) -> Vectors:
    if len(body) % (4 * d):
        raise ValueError(f"rows has {len(body)} bytes; one row is {4 * d} bytes: d = {d} numbers of float32")
    found = np.frombuffer(body, dtype="<f4").reshape(-1, d)
    if shape is not None and shape != list(found.shape):
        raise ValueError(f"shape is {shape}, but rows holds {len(found)} rows of d = {d} numbers")
    return found
