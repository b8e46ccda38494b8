"""Clusters of Ray: joined where there is one, started on this machine where there is none."""

import os
import socket
from typing import Any

__all__ = ["first_line", "join"]


def join(ray: Any, address: str | None, cpus: float) -> bool:
    """Join a cluster, unless this process is part of one; whether it did."""
    if ray.is_initialized():
        held = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", held):
            raise ValueError(f"address: this process is part of the cluster at {held!r} already, not {address!r}")
        return False
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # Workers that have nothing to do cost nothing: there may be more of them than cores.
        own: dict[str, Any] = {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        # Ray would have workers give way to everything else that the machine does, and callers wait for them.
        own["_system_config"] = {"worker_niceness": 0}
        # "local", as without it Ray would join whichever cluster was last started on this machine.
        ray.init("local", num_cpus=max(os.cpu_count() or 1, int(cpus) + 1), **own, **quiet)
        return True
    try:
        _knock(address)
        ray.init(address=address, **quiet)
    except (OSError, ValueError, RuntimeError) as error:
        raise ValueError(f"address: no Ray cluster answers at {address!r} ({first_line(error)})") from None
    return True


def _knock(address: str) -> None:
    """`OSError` where nobody listens, which Ray itself would only say after two minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        with socket.create_connection((host, int(port)), timeout=5.0):
            pass


def first_line(error: Exception) -> str:
    """The first line of what Ray says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
