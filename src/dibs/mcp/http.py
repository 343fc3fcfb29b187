"""`dibs mcp --http`: the board over streamable HTTP, for clients that do not start the server themselves.

One token is one worker, however often its client connects: its session is always `http`, and it has no process that
could be proved dead. Calls and leases keep what it holds; a closed connection or an ended server gives nothing back.

A client that goes away while its call waits must not be given a task. For the 2026-07-28 protocol the SDK cancels the
call, for the earlier one it does not, so `_while_connected` does. Who gets in is decided by `doors`, how many
connections there may be and how slow they may be by `connection_limits`, how many calls may wait by `seat`.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import signal
import socket
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from dibs.errors import DibsError, Invalid
from dibs.mcp.seat import SLICE, WAITERS_IN_ALL, Seat
from dibs.mcp.tokens import Tokens
from dibs.model import Worker
from dibs.worker import role_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    import uvicorn
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
    from starlette.types import ASGIApp

    from dibs.board import TaskBoard
    from dibs.mcp.connection_limits import Limits

    Request = ServerRequestContext[Any, Any]

HOST = "127.0.0.1"
PORT = 8765
PATH = "/mcp"
SESSION = "http"
BODY_BYTES = 1 << 20
IDLE_SECONDS = 12 * 3600.0
"""After so long without a request a client of the earlier protocol has to begin a new session; it loses nothing."""
GRACE_SECONDS = 1


class CannotListen(DibsError, OSError):
    """The address cannot be listened on."""

    code = "cannot_listen"


class Ready(NamedTuple):
    """What there is to say when clients can connect."""

    url: str
    workers: list[str]
    warning: str


def serve(
    board: TaskBoard,
    tokens: Tokens,
    host: str | None,
    port: int | None,
    allow_hosts: Sequence[str],
    allow_origins: Sequence[str],
    announce: Callable[[Ready], None],
) -> None:
    """Serve the board until SIGINT or SIGTERM. `announce` is called once, when clients can connect."""
    workers = tokens.workers()
    if not workers:
        raise Invalid(
            f"no worker has a token in {tokens.path}, so nobody could call", hint="make one: dibs mcp --new-token NAME"
        )
    origins = [_origin(given) for given in allow_origins]
    with listen(host or HOST, PORT if port is None else port) as listener:
        hosts, warning = _hosts(listener, [_host_name(given) for given in allow_hosts])
        url = f"http://{_bracketed(host or HOST)}:{listener.getsockname()[1]}{PATH}"
        announce(Ready(url, workers, warning))
        seats = Seats(board)
        _run(_application(seats, tokens, hosts, origins), listener, seats)
        seats.close(SLICE)


def _hosts(listener: socket.socket, allowed: list[str]) -> tuple[list[str], str]:
    """The names under which clients may reach this address, and what to warn of."""
    name = listener.getsockname()[0]
    address = ipaddress.ip_address(name.partition("%")[0])
    if address.is_loopback:
        return [_bracketed(name), *allowed], ""
    if not allowed:
        raise Invalid(
            f"{name} can be reached from other machines, and needs --allow-host NAME",
            hint="name the host as clients write it in the URL, e.g. --allow-host board.example",
        )
    warning = "this traffic is not encrypted, tokens included: put TLS in front of it, or a tunnel around it"
    return allowed if address.is_unspecified else [_bracketed(name), *allowed], warning


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections from now on, though nobody answers yet."""
    if not 0 <= port <= 65535:
        raise Invalid(f"{port} is not a port", hint="1 to 65535, or 0 for any that is free")
    try:
        # With the protocol named: asyncio sends without delay only where it knows that it is TCP.
        found = socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM, socket.IPPROTO_TCP, socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
        try:
            if os.name == "posix":
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(128)
        except BaseException:
            listener.close()
            raise
    except (OSError, UnicodeError) as error:
        hint = "see that this machine has the address; the usual one is --host 127.0.0.1"
        if getattr(error, "errno", None) in (errno.EADDRINUSE, errno.EACCES):
            hint = "is one running there already? another port: --port N, or --port 0 for any that is free"
        why = getattr(error, "strerror", None) or error
        raise CannotListen(f"cannot listen on {_bracketed(host)}:{port}: {why}", hint=hint) from None
    return listener


def _config(app: ASGIApp, limits: Limits) -> uvicorn.Config:
    import uvicorn

    from dibs.mcp.connection_limits import bounded

    return uvicorn.Config(
        app,
        http=bounded(limits),
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=GRACE_SECONDS,
    )


def _run(app: ASGIApp, listener: socket.socket, seats: Seats) -> None:
    import logging

    import uvicorn

    from dibs.mcp.connection_limits import Limits

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            seats.close(0)
            super().handle_exit(sig, frame)

    server = Server(_config(app, Limits.of_this_process()))

    def stop(number: int, frame: object) -> None:
        server.should_exit = True

    # uvicorn puts its own handlers over these. At its end it raises the signal again, for whoever was there before.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    logging.getLogger("mcp").setLevel(logging.ERROR)
    server.run(sockets=[listener])


def _application(seats: Seats, tokens: Tokens, hosts: list[str], origins: list[str]) -> ASGIApp:
    from mcp.server.transport_security import TransportSecuritySettings

    from dibs.mcp.doors import Bearer, Doors
    from dibs.mcp.server import make_server

    server = make_server(seats.of)
    server.middleware.append(_while_connected)
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        max_request_body_size=BODY_BYTES,
        session_idle_timeout=IDLE_SECONDS,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # `Doors` does it
    )
    return Doors(Bearer(app, tokens), PATH, BODY_BYTES, hosts, origins)


async def _while_connected(ctx: Request, call_next: CallNext) -> HandlerResult:
    """Cancel a request whose connection is gone: in the earlier protocol the SDK lets it run."""
    import anyio
    from mcp.shared.exceptions import MCPError
    from mcp_types import INTERNAL_ERROR

    from dibs.mcp.doors import GONE

    gone: anyio.Event | None = ctx.request.scope.get(GONE) if ctx.request is not None else None
    if gone is None:
        return await call_next(ctx)
    answers: list[HandlerResult] = []
    failure: Exception = MCPError(INTERNAL_ERROR, "the connection was cut")
    async with anyio.create_task_group() as both:

        async def watch() -> None:
            await gone.wait()
            both.cancel_scope.cancel()

        both.start_soon(watch)
        try:
            answers.append(await call_next(ctx))
        except Exception as error:  # as it is, not in the group's wrapping
            failure = error
        both.cancel_scope.cancel()
    if answers:
        return answers[0]
    raise failure


class Seats:
    """The seats of all workers that have called, each kept: they share the board."""

    def __init__(self, board: TaskBoard) -> None:
        self._board = board
        self._lock = threading.Lock()
        self._seats: dict[str, Seat] = {}
        self._waiters = threading.Semaphore(WAITERS_IN_ALL)

    def of(self, context: Request) -> Seat:
        """The seat of the worker whose token came with the request."""
        assert context.request is not None
        name = context.request.user.display_name
        with self._lock:
            if name not in self._seats:
                worker = Worker(name, "agent", role_of(name), SESSION)
                self._seats[name] = Seat(lambda: self._board, worker, waiters=self._waiters)
            return self._seats[name]

    def close(self, patience: float) -> None:
        """Let the calls that wait end. A signal's handler calls this: it takes no lock that the event loop may hold."""
        for seat in self._seats.values():
            seat.close(patience)


# -- names


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _host_name(given: str) -> str:
    """A name for the Host header, with a port or for all ports."""
    name = given.strip().lower()
    if not name or "/" in name or "*" in name or not name.isprintable() or " " in name:
        raise Invalid(f"{given!r:.80} is not a host", hint="as in the URL: --allow-host board.example, or NAME:PORT")
    return _bracketed(name) if name.count(":") > 1 and not name.startswith("[") else name


def _origin(given: str) -> str:
    scheme, _, rest = given.strip().partition("://")
    if scheme.lower() not in ("http", "https") or not rest or set("/*@ ") & set(rest):
        raise Invalid(
            f"{given!r:.80} is not an origin", hint="scheme and host, no path: --allow-origin https://ci.example"
        )
    return given.strip().lower()
