"""Bounds for the connections of an HTTP server: how many there may be, and how long a request may take to arrive.

    uvicorn.Config(app, http=bounded(Limits.of_this_process()))

A request, head and body, has to arrive within `seconds` of the moment from which it is waited for: the connection's
beginning, or the end of the answer before. Later it gets 408, and the connection is closed. An idle connection between
two requests is uvicorn's affair (`timeout_keep_alive`).

When there are too many connections, in all or from one address, a new one takes the place of the one whose request has
been waited for longest: whoever holds connections open without asking anything keeps nobody out. Only if every
connection has a request at work, the new one gets 503.

Nothing here knows of MCP. All of it runs in the event loop's thread.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, NamedTuple, Self

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

MOST = 1024
FILES = 8192
"""Open files that a server asks for, if it may: connections are at most half of what it gets."""
_CLOSING = b"connection: close\r\ncontent-type: text/plain; charset=utf-8\r\n"


class Limits(NamedTuple):
    """`in_all` and `per_peer` count connections. Behind a proxy, and on one machine, all clients share an address, so
    `per_peer` leaves room for sixteen workers with many connections each."""

    in_all: int = MOST
    per_peer: int = MOST // 2
    seconds: float = 30.0

    @classmethod
    def of_this_process(cls) -> Self:
        """The usual limits, or lower ones where this process may open few files. Raises its soft limit, if it can."""
        try:
            import resource
        except ImportError:  # Windows, which has no such limit
            return cls()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        unlimited = resource.RLIM_INFINITY
        wanted = FILES if hard == unlimited else min(FILES, hard)
        if soft != unlimited and soft < wanted:
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
                soft = wanted
            except (OSError, ValueError):
                pass  # then with those that there are
        in_all = MOST if soft == unlimited else max(2, min(MOST, soft // 2))
        return cls(in_all, in_all // 2)


def bounded(limits: Limits) -> type[H11Protocol]:
    """uvicorn's protocol for HTTP/1.1 with these limits, for all connections of one server together."""
    connections: dict[BoundedProtocol, str] = {}
    """Every open connection, and its peer."""
    unasked: dict[BoundedProtocol, asyncio.TimerHandle] = {}
    """Those whose next request has not arrived whole, the one that is waited for longest first."""

    class BoundedProtocol(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            peer = _peer(self.client)
            if not (_room(limits.per_peer, peer) and _room(limits.in_all, None)):
                self._refuse(b"503 Service Unavailable", b"too many connections are at work here; try again later\n")
                return
            connections[self] = peer
            self._watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            self.forget()
            super().connection_lost(exc)

        def forget(self) -> None:
            """It counts no longer: it is closed, or being closed."""
            connections.pop(self, None)
            if (timer := unasked.pop(self, None)) is not None:
                timer.cancel()

        def _watch(self) -> None:
            """Keep a time limit exactly while a request, or the rest of one, is waited for."""
            if self not in connections:
                return
            if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
                if (timer := unasked.pop(self, None)) is not None:
                    timer.cancel()
            elif self not in unasked:
                unasked[self] = self.loop.call_later(limits.seconds, self._out_of_time)

        def _out_of_time(self) -> None:
            why = b"the request did not arrive in time; send it again, at once and whole\n"
            has_begun = self.conn.their_state is h11.SEND_BODY or bool(self.conn.trailing_data[0])
            self._refuse(b"408 Request Timeout", why if has_begun else b"")

        def _refuse(self, status: bytes, why: bytes) -> None:
            """Close the connection, with an answer if there is something to answer and nothing was answered yet."""
            self.forget()
            if why and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                length = b"content-length: %d\r\n\r\n" % len(why)
                self.transport.write(b"HTTP/1.1 " + status + b"\r\n" + _CLOSING + length + why)
            self.transport.close()

    def _room(most: int, peer: str | None) -> bool:
        """Is there room for one more connection (from a peer), if need be in the place of one that asks nothing?"""
        count = len(connections) if peer is None else sum(1 for each in connections.values() if each == peer)
        if count < most:
            return True
        oldest = next((each for each in unasked if peer in (None, connections[each])), None)
        if oldest is None:
            return False
        oldest.forget()
        oldest.transport.close()
        return True

    return BoundedProtocol


def _peer(client: tuple[str, int] | None) -> str:
    """The address that counts as one: of IPv6 the network of 64 bits, which one machine has for itself."""
    try:
        address = ipaddress.ip_address((client or ("", 0))[0].partition("%")[0])
    except ValueError:
        return ""  # a Unix socket
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.IPv6Network((address, 64), strict=False))
    return str(address)
