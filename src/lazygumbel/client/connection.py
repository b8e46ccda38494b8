"""`Client`: one connection to a service."""

import json
import time
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import urlencode, urlsplit

from lazygumbel.client.thetas import Theta, Vectors, encode
from lazygumbel.forms import Audit, Change, Draws, Estimate, Info, OrderedDraws, Rows, TopK, read

__all__ = ["Client", "ServiceError"]


class ServiceError(Exception):
    """The service refused a request: `status` is that of HTTP, `message` the reason in its words."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{message} (status {status})")
        self.status, self.message = status, message


class Client:
    """One connection, kept open; for one thread at a time.

    A service that is too busy is asked again, up to `retries` times, after the seconds that it names.
    """

    def __init__(self, url: str, *, token: str | None = None, timeout: float = 60.0, retries: int = 3) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url must be like http://127.0.0.1:8000, not {url!r}")
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._connection = kind(parts.hostname, parts.port, timeout=timeout)
        self._path = parts.path.rstrip("/")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._retries = retries

    def sample(
        self,
        theta: Theta,
        *,
        temperature: float = 1.0,
        size: int = 1,
        exclude: Sequence[Any] | None = None,
        seed: int | None = None,
        method: str | None = None,
        delta: float | None = None,
        log_prob: bool = False,
    ) -> Draws:
        """Independent samples."""
        given = {"size": size, "exclude": exclude, "seed": seed, "method": method, "delta": delta, "log_prob": log_prob}
        return read(Draws, self._ask("sample", theta, temperature=temperature, **given))

    def sample_without_replacement(
        self,
        theta: Theta,
        size: int,
        *,
        temperature: float = 1.0,
        exclude: Sequence[Any] | None = None,
        seed: int | None = None,
        method: str | None = None,
        delta: float | None = None,
        log_prob: bool = False,
    ) -> OrderedDraws:
        """Distinct rows, in the order of drawing."""
        given = {"size": size, "exclude": exclude, "seed": seed, "method": method, "delta": delta, "log_prob": log_prob}
        found = self._ask("sample-without-replacement", theta, temperature=temperature, **given)
        return read(OrderedDraws, found)

    def log_partition(self, theta: Theta, **settings: Any) -> Estimate:
        """log Z. Settings: temperature, exclude, seed, method, rel_err."""
        return read(Estimate, self._ask("log-partition", theta, **settings))

    def entropy(self, theta: Theta, **settings: Any) -> Estimate:
        """-E[log Pr] in nats. Settings: temperature, exclude, seed, method, rel_err."""
        return read(Estimate, self._ask("entropy", theta, **settings))

    def log_prob(self, theta: Theta, ids: Sequence[Any], **settings: Any) -> Estimate:
        """log Pr of rows by ids or names. Settings: temperature, exclude, seed, method, rel_err."""
        return read(Estimate, self._ask("log-prob", theta, ids=ids, **settings))

    def expectation(self, theta: Theta, of: Mapping[int | str, float] | None = None, **settings: Any) -> Estimate:
        """E[phi]; or E[f] for `of`, the values of f at some rows, zero at all others.

        Settings: temperature, exclude, seed, method, rel_err.
        """
        if of is not None:
            settings["of"] = {"ids": list(of), "values": list(of.values())}
        return read(Estimate, self._ask("expectation", theta, **settings))

    def top_k(self, theta: Theta, k: int = 10, *, exclude: Sequence[Any] | None = None) -> TopK:
        """The rows with the largest inner products."""
        return read(TopK, self._ask("top-k", theta, k=k, exclude=exclude))

    def audit(self, theta: Theta, ids: Sequence[Any] = (), **settings: Any) -> Audit:
        """The truth about one theta: every row is scored. Settings: temperature, exclude."""
        return read(Audit, self._ask("audit", theta, ids=list(ids), **settings))

    def add(self, rows: Vectors, names: Sequence[str] | None = None) -> Change:
        """Add rows, with names where the others have some; durable when this returns. Needs a live service."""
        given = {} if names is None else {"names": list(names)}
        return self._change("add", {"rows": encode(rows, "rows"), **given})

    def remove(self, ids: Sequence[int | str]) -> Change:
        """Remove rows by ids or names; requests made from now on do not see them."""
        return self._change("remove", {"ids": list(ids)})

    def replace(self, ids: Sequence[int | str], rows: Vectors) -> Change:
        """Put other rows under these ids or names."""
        return self._change("replace", {"ids": list(ids), "rows": encode(rows, "rows")})

    def rows(self, ids: Sequence[int], *, vectors: bool = False) -> Rows:
        """Rows by their ids."""
        return self._rows(vectors, ids=",".join(str(i) for i in ids))

    def find(self, name: str, *, vectors: bool = False) -> Rows:
        """The first row of this name."""
        return self._rows(vectors, name=name)

    def complete(self, prefix: str, limit: int = 10) -> Rows:
        """Rows whose names begin so."""
        return self._rows(False, prefix=prefix, limit=str(limit))

    def info(self) -> Info:
        """What is served."""
        return Info(**self._get("/v1/info"))

    def ready(self) -> bool:
        """Whether the service answers questions."""
        try:
            return self._get("/ready").get("status") == "ready"
        except ServiceError as error:
            if error.status == 503:
                return False
            raise

    def reload(self) -> str:
        """Have the service load its folder again; the version it went over to. Needs a token."""
        return str(self._request("POST", "/v1/reload", b"")["version"])

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.close()

    def _rows(self, vectors: bool, **query: str) -> Rows:
        return Rows(**self._get(f"/v1/rows?{urlencode(query | ({'vectors': 'true'} if vectors else {}))}"))

    def _ask(self, verb: str, theta: Theta, **settings: Any) -> dict[str, Any]:
        body = {"theta": encode(theta), **{key: value for key, value in settings.items() if value is not None}}
        return self._post(verb, body)

    def _change(self, kind: str, body: dict[str, Any]) -> Change:
        """Over a new connection: where one that was kept open turns out to be closed, the request is made again, and
        nobody knows whether the change was made the first time."""
        self._connection.close()
        return Change(**self._post(kind, body))

    def _post(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._request("POST", f"/v1/{verb}", json.dumps(body, allow_nan=False).encode())

    def _get(self, path: str) -> dict[str, Any]:
        return self._request("GET", path, None)

    def _request(self, method: str, path: str, body: bytes | None) -> dict[str, Any]:
        response, held = self._send(method, path, body)
        for _ in range(self._retries if response.status == 429 else 0):
            time.sleep(min(float(response.getheader("Retry-After", "1")), 10.0))
            response, held = self._send(method, path, body)
            if response.status != 429:
                break
        try:
            found = cast("dict[str, Any]", json.loads(held))
        except ValueError:
            raise ServiceError(response.status, "the answer is not JSON; is this a lazygumbel service?") from None
        if response.status != 200:
            raise ServiceError(response.status, str(found.get("error", "refused")))
        return found

    def _send(self, method: str, path: str, body: bytes | None) -> tuple[HTTPResponse, bytes]:
        """Once, or twice where a connection that was kept open turns out to be closed."""
        headers = self._headers | ({} if body is None else {"Content-Type": "application/json"})
        kept = self._connection.sock is not None
        try:
            return self._exchange(method, path, body, headers)
        except (ConnectionError, HTTPException):
            self._connection.close()
            if not kept:
                raise
        except BaseException:
            self._connection.close()  # half an answer may be under way
            raise
        return self._exchange(method, path, body, headers)

    def _exchange(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[HTTPResponse, bytes]:
        self._connection.request(method, self._path + path, body, dict(headers))
        response = self._connection.getresponse()
        return response, response.read()
