"""A model on loopback that says what a script says, in the words of three vendors: the Anthropic Messages API, the
OpenAI Responses API and Gemini's generateContent, streamed or not. Just enough of each for the clients' agent loops.

    with ScriptedModel(Script()) as model:
        model.url                   where the clients are to be sent
    model.script.done               what the workers did, and what came of it
    model.faults                    what no client should have said or got

Whatever is asked beside the agent loop (titles, summaries, quotas) gets a harmless answer.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from tests.clients.script import LAST_WORDS, Action, Done, Script
from tests.clients.wires import WIRES, Wire

_WHO = re.compile(r"You are (worker-\d+), a worker in a team")


class _Play:
    """How far one conversation is. The same question again, after a lost connection, gets the same answer again."""

    def __init__(self, worker: str, steps: Generator[Action, str, None]) -> None:
        self.worker = worker
        self.steps = steps
        self.action: Action | None = next(steps)
        self.answered = 0
        self.lock = threading.Lock()


class ScriptedModel:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.faults: list[str] = []
        self._plays: dict[str, _Play] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, wire: Wire, body: dict[str, Any]) -> Action | str:
        """What the model does next in this conversation: an action, or words."""
        found = _WHO.search(json.dumps(body))
        if found is None or "claim_task" not in json.dumps(body.get("tools", [])):
            return wire.aside
        answers = wire.answers(body)
        play = self._plays.get(found[1])
        if play is None or not answers:
            play = self._plays[found[1]] = _Play(found[1], self.script.play(found[1]))
        with play.lock:
            self._go_on(play, answers)
            return play.action or LAST_WORDS

    def _go_on(self, play: _Play, answers: list[str]) -> None:
        if play.action is None or len(answers) == play.answered:
            return
        if len(answers) != play.answered + 1:
            raise ValueError(f"{play.worker}: {len(answers)} answers, where {play.answered} were known")
        play.answered += 1
        self.script.done.append(Done(play.worker, play.action, answers[-1]))
        try:
            play.action = play.steps.send(answers[-1])
        except StopIteration:
            play.action = None


def _handler(model: ScriptedModel) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
            path = urlsplit(self.path).path
            try:
                for wire in WIRES:
                    if wire.path.search(path):
                        kind, text = wire.say(model.answer(wire, body), body, path)
                        return self._send(200, kind, text)
                self._send(200, "application/json", '{"input_tokens": 9, "totalTokens": 9}')
            except (ValueError, KeyError) as error:
                model.faults.append(f"{path}: {error!r}")
                self._send(400, "application/json", json.dumps({"error": {"message": repr(error)}}))

        def do_GET(self) -> None:
            self._send(404, "application/json", "{}")

        do_HEAD = do_GET

        def _send(self, status: int, kind: str, text: str) -> None:
            data = text.encode()
            try:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)
            except ConnectionError:
                self.close_connection = True  # the client has ended meanwhile

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
