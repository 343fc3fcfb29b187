"""MCP as lines of JSON, both eras of it, without the SDK: its imports alone are 0.3 seconds and 50 MB for every agent.

    connection = Connection(sit_down, send)
    for line in sys.stdin.buffer:
        connection.receive(line)

A client of the earlier era opens with `initialize`; since 2026-07-28 every request carries its version and its client
in `_meta` instead, and nothing is agreed on before. The first request decides which of the two a connection speaks.
What has to look at the board works on a thread of its own; the rest is answered at once. A request that is cancelled
gets no answer, and what it took is given back: `Call` decides who was first.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from threading import Lock, Thread
from typing import Any

from dibs.errors import DibsError
from dibs.mcp import answers, offer
from dibs.mcp.offer import Params, Refused, Result
from dibs.mcp.seat import Call, Gone, Seat, report

HANDSHAKES = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN = "2026-07-28"

AT_ONCE = 256
"""Requests at work at the same time; each takes a thread. `seat.WAITERS` is far below."""

_PREFIX = "io.modelcontextprotocol/"
_VERSION, _CAPABILITIES = _PREFIX + "protocolVersion", _PREFIX + "clientCapabilities"
_CLIENT, _SERVER = _PREFIX + "clientInfo", _PREFIX + "serverInfo"

_INVALID_REQUEST, _NO_METHOD, _INVALID_PARAMS, _INTERNAL, _BUSY = -32600, -32601, -32602, -32603, -32000
_NO_VERSION = -32022

_SELF = {"capabilities": offer.CAPABILITIES, "instructions": offer.INSTRUCTIONS}
_CACHEABLE = (*offer.LISTS, "resources/read", "server/discover")
_WANTS: dict[str, tuple[str, ...]] = {"tools/call": ("name",), "resources/read": ("uri",), "prompts/get": ("name",)}

_KNOWN_CLIENTS = (
    ("claude", "claude"),
    ("codex", "codex"),
    ("gemini", "gemini"),
    ("cursor", "cursor"),
    ("visual studio code", "vscode"),
)


class Error(Exception):
    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class Connection:
    """One client. `sit_down` gives its seat, told what the client calls itself; `send` writes one line."""

    def __init__(self, sit_down: Callable[[str | None], Seat], send: Callable[[bytes], None]) -> None:
        self._sit_down = sit_down
        self._send = send
        self._era: str | None = None
        self._turn = Lock()
        self._calls: dict[str | int, Call] = {}

    def receive(self, line: bytes) -> None:
        """One line of the client. What is no message is passed over: there is nobody to answer."""
        try:
            message = json.loads(line.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return
        if not isinstance(message, dict) or not isinstance(method := message.get("method"), str):
            return
        params = message.get("params")
        if "id" not in message:
            if method == "notifications/cancelled" and isinstance(params, dict):
                self._cancel(params.get("requestId"))
            return
        request_id = message["id"]
        if isinstance(request_id, bool) or not isinstance(request_id, str | int):
            return
        try:
            if not isinstance(params, dict | None):
                raise Refused
            result = self._answer(request_id, method, params or {})
        except Exception as error:
            self._refuse(request_id, error)
            return
        if result is not None:
            self._say(request_id, method, result)

    # -- requests

    def _answer(self, request_id: str | int, method: str, params: Params) -> Result | None:
        """The answer, or None if a thread will give it."""
        if method == "ping" and self._era != "modern":
            return {}
        if method == "initialize" and self._era != "modern":
            return self._initialize(params)
        self._settle_era(method, params)
        if method == "server/discover" and self._era == "modern":
            return {"supportedVersions": [MODERN], **_SELF}
        if method in offer.LISTS:
            return offer.LISTS[method]
        for name in _WANTS.get(method, ()):
            if not isinstance(params.get(name), str) or not isinstance(params.get("arguments"), dict | None):
                raise Refused
        if method == "prompts/get":
            return offer.prompt(params)
        if method not in offer.ON_THE_BOARD:
            raise Error(_NO_METHOD, "Method not found", method)
        self._begin(request_id, method, params)
        return None

    def _initialize(self, params: Params) -> Result:
        asked = params.get("protocolVersion")
        if not isinstance(asked, str):
            raise Refused
        self._sit_down(client_name(params.get("clientInfo")))
        self._era = "handshake"
        version = asked if asked in HANDSHAKES else HANDSHAKES[-1]
        return {"protocolVersion": version, "serverInfo": offer.SERVER, **_SELF}

    def _settle_era(self, method: str, params: Params) -> None:
        meta = params.get("_meta")
        version = meta.get(_VERSION) if isinstance(meta, dict) else None
        if self._era == "handshake":
            if version is not None:
                raise Error(_INVALID_REQUEST, "this connection has begun with initialize; requests carry no version")
            return
        if version is None:
            if self._era is None:
                raise Refused("the connection has to begin with initialize, or requests to carry a version in _meta")
            if method == "initialize":
                said = f"connection is serving the {MODERN} protocol; the initialize handshake is not accepted"
                raise Error(_NO_VERSION, said, _versions(params.get("protocolVersion")))
            raise Refused(f"params._meta must be an object carrying '{_VERSION}' and '{_CAPABILITIES}'", None)
        if version != MODERN:
            raise Error(_NO_VERSION, "Unsupported protocol version", _versions(version))
        assert isinstance(meta, dict)
        if not isinstance(meta.get(_CAPABILITIES), dict):
            raise Refused(f"params._meta is missing the required envelope key(s): {_CAPABILITIES}", None)
        self._sit_down(client_name(meta.get(_CLIENT)))
        self._era = "modern"

    # -- what works on the board

    def _begin(self, request_id: str | int, method: str, params: Params) -> None:
        call = Call(self._sit_down(None))
        with self._turn:
            if len(self._calls) >= AT_ONCE or request_id in self._calls:
                raise Error(_BUSY, f"{AT_ONCE} requests are at work, or one with this id; call again")
            self._calls[request_id] = call
        Thread(target=self._work, args=(request_id, call, method, params), name=method, daemon=True).start()

    def _work(self, request_id: str | int, call: Call, method: str, params: Params) -> None:
        failure: Exception | None = None
        result: Result = {}
        try:
            with call:
                result = offer.ON_THE_BOARD[method](call, params)
                call.hand_over()
        except Exception as error:
            failure = error
        with self._turn:  # whoever takes the call off has the last word: this thread, or a cancellation
            if self._calls.pop(request_id, None) is None:
                return
        if failure is not None:
            self._refuse(request_id, failure)
        else:
            self._say(request_id, method, result)

    def _cancel(self, request_id: object) -> None:
        if not isinstance(request_id, str | int):
            return
        with self._turn:
            call = self._calls.pop(request_id, None)
        if call is not None and call.cancel():
            Thread(target=call.take_back, name="taking back", daemon=True).start()

    # -- answers

    def _say(self, request_id: str | int, method: str, result: Result) -> None:
        if self._era == "modern":
            result = {**result, "resultType": "complete", "_meta": {_SERVER: offer.SERVER}}
            if method in _CACHEABLE:
                result |= {"cacheScope": "private", "ttlMs": 0}
        self._write({"jsonrpc": "2.0", "id": request_id, "result": result})

    def _refuse(self, request_id: str | int, error: Exception) -> None:
        if isinstance(error, Gone):
            error = Error(_INTERNAL, "the server is ending; nothing was changed")
        elif isinstance(error, Refused):
            error = Error(_INVALID_PARAMS, error.message, error.data)
        elif isinstance(error, DibsError):
            error = Error(_INVALID_PARAMS, answers.said(error), answers.refusal(error))
        elif not isinstance(error, Error):
            report(error)
            error = Error(_INTERNAL, f"internal error: {type(error).__name__}: {error}")
        said: dict[str, Any] = {"code": error.code, "message": error.message}
        if error.data is not None:
            said["data"] = error.data
        self._write({"jsonrpc": "2.0", "id": request_id, "error": said})

    def _write(self, message: dict[str, Any]) -> None:
        self._send(answers.as_text(message).encode() + b"\n")


def _versions(requested: object) -> dict[str, object]:
    return {"supported": [MODERN], "requested": requested}


def client_name(info: object) -> str | None:
    """The client as it names itself, in one of our words where we have one."""
    given = info.get("name") if isinstance(info, dict) else None
    if not isinstance(given, str):
        return None
    lower = given.lower()
    for part, word in _KNOWN_CLIENTS:
        if part in lower:
            return word
    plain = "".join(c if c.isascii() and c.isalnum() else "-" for c in lower[:24]).strip("-")
    return plain or "agent"
