"""A TCP proxy before a PostgreSQL server that reads the protocol's messages and breaks connections where it is told to.

Calling sequence: `with Proxy(url) as proxy:` listens on a port of its own; `proxy.url` is the same address through it.
`proxy.arm(Fault(…))` sets a trap (or several), counted from then on over all connections; `fault.struck` says how often
it closed. `proxy.watch()` starts the `log` of messages and the count of `round_trips` anew.

A connection breaks by a reset, by a close, by silence (packets are dropped in both directions by a filter on the
sockets, so nothing is even acknowledged, as behind a firewall that has forgotten the connection), or by a reset
that only the client hears of. `cut_off()` drops the packets of all connections, new ones included, until `heal()`.

The framing: after the first message of a connection (length, code) every message is a letter, a length and a body.
Encryption is declined, since it could not be looked into. No thread and no socket survives `close`.
"""

from __future__ import annotations

import ctypes
import select
import socket
import struct
import threading
from types import TracebackType
from typing import Literal, NamedTuple, Self
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from psycopg.conninfo import conninfo_to_dict

Sender = Literal["client", "server"]
How = Literal["reset", "close", "silence", "half"]

_CODES = {80877103: "encrypt", 80877104: "encrypt", 80877102: "cancel"}
_ATTACH_FILTER, _DETACH_FILTER = 26, 27
_RESET = struct.pack("ii", 1, 0)
_PATIENCE = 20.0


class Message(NamedTuple):
    """One message: its letter (or `startup`, `encrypt`, `cancel`), and what a reader wants to know of it.

    `text` is the SQL that a client's message is about, also where it names a statement that was prepared before; of
    the server's it is the command's tag (C), the transaction's state (Z) or the error's SQLSTATE (E).
    """

    sender: Sender
    kind: str
    text: str
    raw: bytes


class Fault:
    """A connection breaks at the `number`-th message of a sender that has this kind, and contains or (`whole`) is this
    text.

    The message itself is not passed on; with `inside`, half of its bytes are. `after_bytes` counts bytes instead of
    messages. After `times` strikes everything passes.
    """

    def __init__(
        self,
        sender: Sender,
        number: int = 1,
        *,
        kind: str = "",
        text: str = "",
        whole: bool = False,
        how: How = "reset",
        inside: bool = False,
        after_bytes: int | None = None,
        times: int = 1,
    ) -> None:
        self.sender, self.number, self.kind, self.text, self.whole = sender, number, kind, text, whole
        self.how, self.inside, self.after_bytes, self.times = how, inside, after_bytes, times
        self.struck = 0
        self.struck_at: Message | None = None
        self._seen = 0

    def passing(self, message: Message) -> int | None:
        """How many bytes of a message still pass before the connection breaks; None: all, and it does not break."""
        if self.struck >= self.times or message.sender != self.sender:
            return None
        if self.after_bytes is not None:
            left = self.after_bytes - self._seen
            self._seen += len(message.raw)
            if left >= len(message.raw):
                return None
            return self._strike(message, left)
        if (self.kind and message.kind != self.kind) or self.text not in message.text:
            return None
        if self.whole and message.text != self.text:
            return None
        self._seen += 1
        if self._seen < self.number:
            return None
        return self._strike(message, len(message.raw) // 2 if self.inside else 0)

    def _strike(self, message: Message, passed: int) -> int:
        self.struck += 1
        self.struck_at = message
        self._seen = 0
        return passed


class Proxy:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query))
        board = {key: query.pop(key) for key in ("board",) if key in query}
        known = conninfo_to_dict(urlunsplit(parts._replace(query=urlencode(query))))
        self._server = (str(known.get("host") or "localhost"), int(known.get("port") or 5432))
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        kept = {key: value for key, value in query.items() if key not in ("host", "port", "hostaddr")} | board
        person = f"{parts.username or known.get('user')}@"
        path = parts.path or f"/{known['dbname']}"
        self.url = urlunsplit(("postgresql", f"{person}127.0.0.1:{self.port}", path, urlencode(kept), ""))
        self.delay = 0.0
        """Seconds that what the server says takes longer."""
        self.swallowed: frozenset[str] = frozenset()
        """Kinds of the server's messages that never arrive; without "A" a client that listens hears nothing."""
        self.log: list[Message] = []
        self.round_trips = 0
        self._faults: tuple[Fault, ...] = ()
        self._lock = threading.Lock()
        self._links: list[_Link] = []
        self._holed = False
        self._stopping = False
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._accept, name="proxy", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._stopping:
            return
        self._stopping = True
        self._wake.send(b".")
        self._thread.join(_PATIENCE)
        for link in self._links:
            link.end()
        for sock in (self._listener, self._wake, self._woken):
            sock.close()

    # -- what a test asks for

    def arm(self, *faults: Fault) -> Fault:
        """Set these traps, and no others; the first of them is returned."""
        with self._lock:
            self._faults = faults
        return faults[0]

    def disarm(self) -> None:
        with self._lock:
            self._faults = ()

    def watch(self) -> None:
        """Begin counting anew."""
        with self._lock:
            self.log = []
            self.round_trips = 0

    def reset(self) -> None:
        """Break all connections, now."""
        for link in self._links:
            link.end()

    def cut_off(self) -> None:
        """From now on no packet of anybody's arrives, and nobody is told."""
        deafen(self._listener)
        self._holed = True
        for link in list(self._links):
            link.silence()

    def heal(self) -> None:
        """Packets arrive again; connections that neither side has given up meanwhile go on."""
        if self._holed:
            self._listener.setsockopt(socket.SOL_SOCKET, _DETACH_FILTER, 0)
            self._holed = False
        for link in list(self._links):
            link.resume()

    @property
    def open_connections(self) -> int:
        return sum(link.alive for link in self._links)

    # -- the connections

    def _accept(self) -> None:
        poll = select.poll()
        for sock in (self._listener, self._woken):
            poll.register(sock, select.POLLIN)
        while not self._stopping:
            poll.poll()
            if self._stopping:
                return
            client, _ = self._listener.accept()
            link = _Link(self, client)
            self._links.append(link)
            if self._holed:
                link.silence()  # it had connected a moment before

    def _connect(self) -> socket.socket:
        host, port = self._server
        if host.startswith("/"):
            local = socket.socket(socket.AF_UNIX)
            local.connect(f"{host}/.s.PGSQL.{port}")
            return local
        remote = socket.create_connection((host, port), _PATIENCE)
        remote.settimeout(None)
        remote.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return remote

    def _verdict(self, message: Message, starts_trip: bool) -> tuple[int, How] | None:
        """Note a message; how much of it passes and how the connection then breaks, or None if it goes on."""
        with self._lock:
            self.log.append(message)
            self.round_trips += starts_trip
            for fault in self._faults:
                passing = fault.passing(message)
                if passing is not None:
                    return passing, fault.how
            return None


class _Link:
    """One client's connection and its counterpart at the server, served by a thread."""

    def __init__(self, proxy: Proxy, client: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server: socket.socket | None = None
        self._reader = _Reader()
        self._silent = threading.Event()
        self._stopping = False
        self._wake, self._woken = socket.socketpair()
        self.alive = True
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._thread = threading.Thread(target=self._run, name="proxy link", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """By a reset, unless it has ended before."""
        self._stopping = True
        self._nudge()
        self._thread.join(_PATIENCE)
        self._wake.close()
        self._woken.close()

    def silence(self) -> None:
        self._silent.set()
        self._nudge()

    def resume(self) -> None:
        self._silent.clear()
        self._nudge()

    def _nudge(self) -> None:
        try:
            self._wake.send(b".")
        except OSError:
            pass  # it has ended already

    def _run(self) -> None:
        try:
            self._serve()
        except OSError:
            pass  # one side has gone; the other one hears of it
        finally:
            self.alive = False
            self._break("reset" if self._stopping else "close")

    def _serve(self) -> None:
        self._server = self._proxy._connect()
        ways = {self._client.fileno(): ("client", self._client, self._server)}
        ways[self._server.fileno()] = ("server", self._server, self._client)
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        for number in ways:
            poll.register(number, select.POLLIN)
        while not self._stopping:
            for number, _ in poll.poll():
                if number not in ways:
                    self._woken.recv(64)
                    self._be_silent()
                    continue
                sender, source, sink = ways[number]
                data = source.recv(1 << 16)
                if not data or not self._pass_on(sender, data, sink):  # type: ignore[arg-type]
                    return

    def _be_silent(self) -> None:
        """Stand still, deaf, for as long as the network is cut."""
        if not self._silent.is_set() or self._server is None:
            return
        pair = (self._client, self._server)
        for sock in pair:
            deafen(sock)
        while self._silent.is_set() and not self._stopping:
            self._woken.recv(64)
        for sock in pair:
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.SOL_SOCKET, _DETACH_FILTER, 0)

    def _pass_on(self, sender: Sender, data: bytes, sink: socket.socket) -> bool:
        """Hand on what arrived, message by message; False when the connection is broken."""
        ready = b""
        for message, starts_trip in self._reader.messages(sender, data):
            if message.kind == "encrypt":
                self._client.sendall(b"N")
                continue
            verdict = self._proxy._verdict(message, starts_trip)
            if verdict is not None:
                passing, how = verdict
                sink.sendall(ready + message.raw[:passing])
                if how != "silence":
                    self._break(how)
                    return False
                self._silent.set()
                self._be_silent()
                ready = message.raw[passing:]  # for when the network is back
                continue
            if sender != "server" or message.kind not in self._proxy.swallowed:
                ready += message.raw
        if ready and not self._stopping:
            if sender == "server" and self._proxy.delay:
                select.select([], [], [], self._proxy.delay)
            if self._silent.is_set():
                self._be_silent()
            sink.sendall(ready)
        return True

    def _break(self, how: How) -> None:
        if how == "half" and self._server is not None:
            self._hang_up(self._client, reset=True)
            deafen(self._server)  # the server goes on waiting for somebody who is not there any more
            while not self._stopping:
                self._woken.recv(64)
            self._hang_up(self._server, reset=True)
            return
        for sock in (self._client, self._server):
            if sock is not None:
                self._hang_up(sock, reset=how == "reset")

    @staticmethod
    def _hang_up(sock: socket.socket, reset: bool) -> None:
        if sock.fileno() < 0:
            return
        if reset:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        sock.close()


class _Reader:
    """Cuts the two streams of a connection into messages, and knows what is being run."""

    def __init__(self) -> None:
        self._rest: dict[Sender, bytes] = {"client": b"", "server": b""}
        self._started = False
        self._statements: dict[bytes, str] = {}
        self._portals: dict[bytes, str] = {}
        self._unanswered = 0
        self._in_burst = False

    def messages(self, sender: Sender, data: bytes) -> list[tuple[Message, bool]]:
        """The messages that are complete now; with each, whether the client turned to the server with it, having
        nothing to wait for any more (so that it begins a round trip)."""
        rest = self._rest[sender] + data
        found = []
        while True:
            head = 0 if sender == "client" and not self._started else 1
            if len(rest) < head + 4:
                break
            end = head + struct.unpack_from("!i", rest, head)[0]
            if len(rest) < end:
                break
            raw, rest = rest[:end], rest[end:]
            found.append(self._tell(sender, raw, head))
        self._rest[sender] = rest
        return found

    def _tell(self, sender: Sender, raw: bytes, head: int) -> tuple[Message, bool]:
        if not head:
            kind = _CODES.get(struct.unpack_from("!i", raw, 4)[0], "startup")
            self._started = kind != "encrypt"
            return Message(sender, kind, "", raw), kind == "startup"
        kind, body = chr(raw[0]), raw[5:]
        if sender == "server":
            if kind == "Z":
                self._unanswered -= 1
                self._in_burst = False
            return Message(sender, kind, self._answer(kind, body), raw), False
        starts = self._unanswered <= 0 and not self._in_burst and kind != "X"
        self._in_burst = True
        self._unanswered = max(self._unanswered, 0) + (kind in "QSF")
        return Message(sender, kind, self._question(kind, body), raw), starts

    def _question(self, kind: str, body: bytes) -> str:
        if kind == "Q":
            return body.rstrip(b"\0").decode()
        if kind == "P":
            name, sql, _ = body.split(b"\0", 2)
            self._statements[name] = sql.decode()
            return self._statements[name]
        if kind == "B":
            portal, name, _ = body.split(b"\0", 2)
            self._portals[portal] = self._statements.get(name, "")
            return self._portals[portal]
        if kind == "E":
            return self._portals.get(body.split(b"\0", 1)[0], "")
        return ""

    @staticmethod
    def _answer(kind: str, body: bytes) -> str:
        if kind in "CZ":
            return body.rstrip(b"\0").decode()
        if kind == "E":
            return next((field[1:].decode() for field in body.split(b"\0") if field[:1] == b"C"), "")
        return ""


def deafen(sock: socket.socket) -> None:
    """Let the kernel drop every packet that arrives for a socket, unacknowledged: a filter of one instruction, `ret 0`.

    Connections that a deaf listener would have taken hang in their first packet.
    """
    if sock.family == socket.AF_UNIX:
        return  # nothing to drop: whoever is on this machine is only not read from
    program = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0), 8)
    sock.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(program)))
