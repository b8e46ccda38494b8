"""The one JSON form of each result. Keys and shapes are the library's; null stands for a number that is not finite."""

import json
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from lazygumbel.results import Draws, Estimate, Labels, OrderedDraws, TopK, weakest
from lazygumbel.serve.served import Served

__all__ = ["NotJson", "dump", "numbers", "of_draws", "of_estimate", "of_ordered", "of_top_k", "parse"]

_NOT_JSON = "the body is not JSON"


class NotJson(ValueError):
    """A body that cannot be read at all."""


def parse(body: bytes) -> dict[str, Any]:
    """The JSON object in a body; `ValueError` for anything else, NaN and infinity among it."""
    try:
        value: object = json.loads(body, parse_constant=_refuse)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        raise NotJson(_NOT_JSON) from None
    if not isinstance(value, dict):
        raise NotJson(f"{_NOT_JSON} object")
    return cast("dict[str, Any]", value)


def dump(value: dict[str, Any]) -> bytes:
    """JSON, in ASCII."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")


def of_draws(drawn: Draws, served: Served, log_prob: Estimate | None) -> dict[str, Any]:
    """Of `sample`."""
    return {
        **_of_ids(drawn.ids, served),
        "values": numbers(drawn.values),
        **_of_log_prob(log_prob),
        **_of_label(drawn.labels),
        "bound": numbers(drawn.bound),
        "violations": drawn.violations.tolist(),
        "rows": _rows(drawn.rows, log_prob),
    }


def of_ordered(drawn: OrderedDraws, served: Served, log_prob: Estimate | None) -> dict[str, Any]:
    """Of `sample_without_replacement`."""
    return {
        **_of_ids(drawn.ids, served),
        "logits": numbers(drawn.logits),
        "values": numbers(drawn.values),
        "threshold": numbers(drawn.threshold),
        **_of_log_prob(log_prob),
        **_of_label(drawn.labels),
        "bound": numbers(drawn.bound),
        "rows": _rows(drawn.rows, log_prob),
    }


def of_estimate(estimate: Estimate) -> dict[str, Any]:
    """Of `log_partition`, `log_prob`, `entropy` and `expectation`."""
    return {
        "value": numbers(estimate.value),
        "stderr": numbers(estimate.stderr),
        **_of_label(estimate.labels),
        "bound": numbers(estimate.bound),
        "rows": estimate.rows.tolist(),
    }


def of_top_k(found: TopK, served: Served) -> dict[str, Any]:
    """Of `top_k`."""
    return {
        **_of_ids(found.ids, served),
        "scores": numbers(found.scores),
        "exact": found.exact,
        "rows": found.rows.tolist(),
    }


def numbers(values: npt.NDArray[np.floating[Any]]) -> Any:
    """Nested lists, or a number for shape (); null where a number is not finite."""
    if np.isfinite(values).all():
        return values.tolist()
    return np.where(np.isfinite(values), values.astype(object), cast("Any", None)).tolist()


def _of_ids(ids: npt.NDArray[np.int64], served: Served) -> dict[str, Any]:
    names = served.names_of(ids.reshape(-1))
    shaped = None if names is None else np.array([*names, None], dtype=object)[:-1].reshape(ids.shape).tolist()
    return {"ids": ids.tolist(), "names": shaped}


def _of_log_prob(log_prob: Estimate | None) -> dict[str, Any]:
    if log_prob is None:
        return {}
    return {"log_prob": numbers(log_prob.value), "log_prob_stderr": numbers(log_prob.stderr)}


def _of_label(labels: Labels) -> dict[str, Any]:
    """The weakest label and, for several thetas, the label of each."""
    held = labels.reshape(-1).tolist()
    return {"label": weakest(held), **({"labels": held} if labels.ndim else {})}


def _rows(rows: npt.NDArray[np.int64], log_prob: Estimate | None) -> Any:
    return (rows if log_prob is None else rows + log_prob.rows).tolist()


def _refuse(constant: str) -> float:
    raise ValueError(f"the body holds {constant}; all numbers must be finite")
