"""What `/metrics` tells, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

OUTCOMES = {  # by status
    200: "done",
    400: "broken",
    401: "unauthorised",
    403: "forbidden",
    404: "no_such_address",
    408: "slow",
    413: "too_large",
    415: "wrong_type",
    422: "invalid",
    429: "busy",
    499: "left",
    503: "closing",
    504: "late",
}
SECONDS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300)
TOGETHER = (1, 2, 4, 8, 16, 32)


class Counters:
    """Numbers of one service."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._requests = Counter(
            "deal_requests", "Requests that have ended, by outcome.", ("goal", "outcome"), registry=self._registry
        )
        self._seconds = Histogram(
            "deal_request_seconds",
            "From the first byte of a request to the last of its answer, where it was done.",
            ("goal",),
            buckets=SECONDS,
            registry=self._registry,
        )
        self.solve_seconds = Histogram("deal_solve_seconds", "Of a batch.", buckets=SECONDS, registry=self._registry)
        self.batch_size = Histogram(
            "deal_batch_size", "Pictures that were solved together.", buckets=TOGETHER, registry=self._registry
        )
        self.waiting = Gauge("deal_queue_length", "Pictures that wait.", registry=self._registry)
        self.in_flight = Gauge("deal_in_flight", "Requests that have no answer yet.", registry=self._registry)

    def ended(self, goal: str, status: int, seconds: float) -> None:
        """A request has its answer, or nobody to give it to."""
        self._requests.labels(goal, OUTCOMES.get(status, "failed")).inc()
        if status == 200:
            self._seconds.labels(goal).observe(seconds)

    def told(self) -> tuple[bytes, str]:
        """All of them, and the type of this text."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST
