"""What the service counts, for Prometheus."""

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from lazygumbel.serve.asking import Answer

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
_THETAS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """Counters of one service, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = held = CollectorRegistry()
        self._found: dict[tuple[int, tuple[str | int, ...]], Any] = {}
        self.requests = Counter("lazygumbel_requests", "Requests answered.", ["route", "status"], registry=held)
        self.seconds = Histogram(
            "lazygumbel_request_seconds", "From request to answer.", ["route"], buckets=_SECONDS, registry=held
        )
        self.batch = Histogram(
            "lazygumbel_batch_thetas", "Thetas asked in one call of the library.", buckets=_THETAS, registry=held
        )
        self.engine = Histogram(
            "lazygumbel_engine_seconds", "Of one call of the library.", buckets=_SECONDS, registry=held
        )
        self.rows = Counter("lazygumbel_rows_read", "Rows scored.", ["route"], registry=held)
        self.labels = Counter("lazygumbel_answers", "Answers by label.", ["route", "label"], registry=held)
        self.violations = Counter("lazygumbel_ceiling_violations", "Ceilings found too low.", registry=held)
        self.queue = Gauge("lazygumbel_queue_requests", "Requests that wait for the engine.", registry=held)
        self.reloads = Counter("lazygumbel_reloads", "Models reloaded.", ["outcome"], registry=held)
        self.changes = Counter("lazygumbel_changes", "Changes made to rows.", ["kind"], registry=held)
        self.rows_changed = Counter("lazygumbel_rows_changed", "Rows that changed.", ["kind"], registry=held)
        self.model_rows = Gauge("lazygumbel_model_rows", "Rows of the model that is served.", registry=held)

    def _of(self, metric: Any, *labels: str | int) -> Any:
        """The counter of these labels, which its library takes longer to find than to count."""
        key = id(metric), labels
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = metric.labels(*labels)
        return found

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """One request."""
        self._of(self.requests, route, status).inc()
        self._of(self.seconds, route).observe(seconds)

    def count_answer(self, route: str, answer: Answer) -> None:
        """One answer of the engine."""
        self._of(self.rows, route).inc(answer.rows)
        self._of(self.labels, route, answer.label).inc()
        if answer.violations:
            self.violations.inc(answer.violations)

    def count_change(self, kind: str, rows: int, left: int) -> None:
        """One change, of so many rows; so many are there now."""
        self.changes.labels(kind).inc()
        self.rows_changed.labels(kind).inc(rows)
        self.model_rows.set(left)

    def page(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self._registry)
