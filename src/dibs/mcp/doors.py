"""Who gets in at `dibs mcp --http`: two doors, in front of everything that the SDK does.

    Doors     by Host, Origin, path and size: a web page, or a name that was made to point here, is turned away
    Bearer    by token: it says which worker calls; 401 without one. What then is no JSON gets 415

Behind them a request's scope has the worker as its `user`, and in `GONE` an event that is set when its connection ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp_types import INVALID_REQUEST
from starlette.middleware.cors import CORSMiddleware

from dibs.jsontext import dumps
from dibs.mcp.tokens import Tokens, TokensUnusable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

GONE = "dibs.gone"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_HEADERS = (
    "Authorization", "Content-Type", "Last-Event-ID", "Mcp-Method", "Mcp-Name",
    "Mcp-Protocol-Version", "Mcp-Session-Id",
)  # fmt: skip


class Doors:
    """Turns away what a web page or a rebound name could send: by Host, by Origin, and whatever is not for us."""

    def __init__(self, app: ASGIApp, path: str, limit: int, hosts: Iterable[str], origins: Sequence[str]) -> None:
        """`limit`: of a request's body, in bytes. `hosts`: beside the names of this machine's loopback."""
        self._path = path
        self._limit = limit
        self._hosts = frozenset((*LOOPBACK, *hosts))
        self._origins = origins
        if origins:
            app = CORSMiddleware(
                app,
                allow_origins=origins,
                allow_methods=["GET", "POST", "DELETE"],
                allow_headers=_HEADERS,
                expose_headers=["Mcp-Session-Id", "WWW-Authenticate"],
            )
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        if refusal is not None:
            await _refuse(send, *refusal)
        else:
            await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> tuple[int, str, str, str] | None:
        host = _only(scope, b"host").lower()
        if not (host in self._hosts or _without_port(host) in self._hosts):
            why = f"this server is not called {host[:100]!r}"
            return 421, "wrong_host", why, "start it with --allow-host NAME"
        origin = _only(scope, b"origin", absent=None)
        if origin is not None and origin not in (*self._origins, f"http://{host}", f"https://{host}"):
            why = f"pages of {origin[:100]!r} may not call this server"
            return 403, "wrong_origin", why, "start it with --allow-origin ORIGIN"
        if scope["path"] != self._path:
            return 404, "not_found", "there is nothing here", f"the board is at {self._path}"
        size = _only(scope, b"content-length", absent=None) or "0"
        if size.isascii() and size.isdigit() and int(size[:20]) > self._limit:
            why = f"the request has {int(size[:20]):,} bytes; the limit is {self._limit:,}"
            return 413, "too_large", why, "add fewer tasks at once"
        return None


class Bearer:
    """Lets in who has a token, as the worker whose token it is."""

    def __init__(self, app: ASGIApp, tokens: Tokens) -> None:
        self._app = app
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            worker = self._worker(_only(scope, b"authorization"))
        except TokensUnusable as error:
            await _refuse(send, 503, error.code, error.message, error.hint)
            return
        if worker is None:
            why = "the request has no token, or one that is not valid here"
            hint = "send Authorization: Bearer TOKEN; a token is made where the board is: dibs mcp --new-token NAME"
            await _refuse(send, 401, "unauthorized", why, hint, (b"www-authenticate", b'Bearer realm="dibs"'))
            return
        kind = _only(scope, b"content-type")
        if scope["method"] == "POST" and kind.partition(";")[0].strip() != "application/json":
            why = f"the request's content type is {kind[:60]!r}" if kind else "the request has no content type"
            await _refuse(send, 415, "not_json", why, "send JSON, with Content-Type: application/json")
            return
        gone = anyio.Event()

        async def watched() -> Message:
            message = await receive()
            if message["type"] == "http.disconnect":
                gone.set()
            return message

        scope[GONE] = gone
        # As the SDK knows users, so that nobody can go on with another worker's session.
        scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=worker, scopes=[]))
        await self._app(scope, watched, send)

    def _worker(self, header: str) -> str | None:
        scheme, _, token = header.partition(" ")
        return self._tokens.worker_of(token.strip()) if scheme.lower() == "bearer" else None


async def _refuse(send: Send, status: int, code: str, why: str, hint: str, *headers: tuple[bytes, bytes]) -> None:
    """Answer with an error that clients show to their users: they look for one of JSON-RPC in whatever comes back."""
    error = {"code": INVALID_REQUEST, "message": f"{why} ({hint})", "data": {"code": code, "hint": hint}}
    body = dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode() + b"\n"
    kind, size = (b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [kind, size, *headers]})
    await send({"type": "http.response.body", "body": body})


def _only(scope: Scope, name: bytes, absent: Any = "") -> Any:
    """The value of a header; of one that is there twice nothing can be believed, and it counts as empty."""
    values = [value for key, value in scope["headers"] if key == name]
    return values[0].decode("latin-1") if len(values) == 1 else "" if values else absent


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isascii() and port.isdigit() else host
