"""Claude Code's side of the Agent SDK: a control request `initialize`, the prompt as a user message, then answers."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from tests.pool.standins import acting


def begin() -> str:
    """Answer what the SDK asks first; the prompt."""
    for line in sys.stdin:
        message = json.loads(line)
        if message["type"] == "control_request":
            answer_ = {"subtype": "success", "request_id": message["request_id"], "response": {"commands": []}}
            _say({"type": "control_response", "response": answer_})
        elif message["type"] == "user":
            return str(message["message"]["content"])
        else:
            acting.refuse(f"a message of type {message['type']}")
    acting.refuse("no prompt on stdin")


def answer(
    entry: Mapping[str, Any], env: Mapping[str, str], hooks: Sequence[tuple[str, Any]], said: str, **seen: Any
) -> NoReturn:
    acting._HOOKS[:] = hooks
    server = acting.Server(entry["command"], entry.get("args", []), env)
    report = acting._work(server)
    server.close()
    ours = {name: value for name, value in os.environ.items() if name.startswith("DIBS_")}
    seen |= {**report, "prompt": said, "argv": sys.argv[1:], "env": ours, "cwd": os.getcwd()}
    block = {"type": "tool_use", "id": "toolu_01", "name": "mcp__dibs__claim_task", "input": {}}
    _assistant(block)
    _assistant({"type": "text", "text": json.dumps(seen)})
    failed = "fail" in said
    _say({
        "type": "result", "subtype": "error_during_execution" if failed else "success", "is_error": failed,
        "duration_ms": 1, "duration_api_ms": 1, "num_turns": 1, "session_id": "s", "total_cost_usd": 0.0,
        "result": "it went wrong" if failed else "done",
    })  # fmt: skip
    sys.exit(0)


def _assistant(block: dict[str, Any]) -> None:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "stand-in", "content": [block]}
    _say({"type": "assistant", "message": message, "parent_tool_use_id": None, "session_id": "s"})


def _say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)
