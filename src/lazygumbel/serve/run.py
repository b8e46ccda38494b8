"""The server of `lazygumbel serve`: its socket, its signals, its end."""

import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import uvicorn

from lazygumbel.serve import logs
from lazygumbel.serve.app import create_app
from lazygumbel.serve.gate import LOOPBACK
from lazygumbel.serve.limits import Limits
from lazygumbel.serve.served import Folder
from lazygumbel.serve.service import Service
from lazygumbel.warm import warm_up

__all__ = ["read_token", "run"]

_BACKLOG = 2048
_SWITCH = 5e-4
"""Seconds after which a thread that waits for Python gets it: the engine's calls are shorter than the 5 ms of old."""


def read_token(path: Path) -> str:
    """The token in a file."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise ValueError(f"token-file: {path} cannot be read as text") from None


def run(
    folder: Folder,
    *,
    host: str,
    port: int,
    token: str | None,
    insecure: bool,
    limits: Limits,
    announce: Callable[[str], None],
) -> None:
    """Serve until SIGTERM or Ctrl-C, then answer what was accepted. SIGHUP loads the folder again.

    `announce` is called with the address once requests are taken.
    """
    if not 0 <= port < 2**16:
        raise ValueError(f"port must be from 0 to 65535, not {port}")
    local = host in LOOPBACK
    if not (local or token or insecure):
        raise ValueError(
            f"host: {host} can be reached from elsewhere; give --token-file, or --insecure to serve without a token"
        )
    app = create_app(folder, limits=limits, token=token, hosts=LOOPBACK if local else None)
    service: Service = app.state.service
    logs.set_up()
    sys.setswitchinterval(_SWITCH)
    warm_up()  # or the first requests might wait for longer than they may while kernels compile
    with _listen(host, port) as listening:
        config = uvicorn.Config(
            app,
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=int(limits.seconds) + 5,
        )
        shown = f"[{host}]" if ":" in host else host
        server = _Server(config, lambda: announce(f"http://{shown}:{listening.getsockname()[1]}/"))
        _on_signals(service)
        server.run(sockets=[listening])


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._announce()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ValueError(f"host, port: cannot listen on {host}, port {port} ({error.strerror})") from None


def _on_signals(service: Service) -> None:
    def reload(_: int, __: FrameType | None) -> None:
        service.reload_soon()

    def ignore(_: int, __: FrameType | None) -> None:
        """The server took it, ended in good order and raised it again: that is no failure."""

    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, reload)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ignore)
