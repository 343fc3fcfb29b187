"""Three vendors' words for one script: how each client's tools are named, how their answers are read from a request,
and how an action or a sentence is streamed back.

A wire has: `path`, which requests are its own; `aside`, what to say beside the agent loop; `answers(body)`, what the
client's tools have answered so far, in order; `say(turn, body, path)`, the type and the text of a response.
"""

from __future__ import annotations

import itertools
import json
import re
from typing import Any, Protocol

from tests.clients.script import Action

_NUMBERS = itertools.count(1)
_STREAM, _JSON = "text/event-stream", "application/json"


class Wire(Protocol):
    path: re.Pattern[str]
    aside: str

    def answers(self, body: dict[str, Any]) -> list[str]: ...

    def say(self, turn: Action | str, body: dict[str, Any], path: str) -> tuple[str, str]: ...


def _events(*events: dict[str, Any]) -> str:
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)


def _text(content: Any) -> str:
    """The words in a content, which is a string, or blocks of them."""
    if isinstance(content, str):
        return content
    return "\n".join(str(block.get("text", "")) for block in content or ())


class Messages:
    """Anthropic; Claude Code 2.1.325."""

    path = re.compile(r"/v1/messages$")
    aside = "All is well."

    def answers(self, body: dict[str, Any]) -> list[str]:
        blocks = [
            block
            for message in body["messages"]
            if message["role"] == "user" and isinstance(message["content"], list)
            for block in message["content"]
        ]
        return [_text(block.get("content")) for block in blocks if block["type"] == "tool_result"]

    def say(self, turn: Action | str, body: dict[str, Any], path: str) -> tuple[str, str]:
        number = next(_NUMBERS)
        block: dict[str, Any] = {"type": "text", "text": turn}
        if isinstance(turn, Action):
            name, given = self._tool(turn)
            block = {"type": "tool_use", "id": f"toolu_{number:024}", "name": name, "input": given}
        why = "tool_use" if isinstance(turn, Action) else "end_turn"
        usage = {"input_tokens": 9, "output_tokens": 9}
        head = {"id": f"msg_{number:024}", "type": "message", "role": "assistant", "model": body["model"]}
        if not body.get("stream"):
            whole = {**head, "content": [block], "stop_reason": why, "stop_sequence": None, "usage": usage}
            return _JSON, json.dumps(whole)
        if isinstance(turn, Action):
            empty, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(given)}
        else:
            empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": turn}
        begun = {**head, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        return _STREAM, _events(
            {"type": "message_start", "message": begun},
            {"type": "content_block_start", "index": 0, "content_block": empty},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": why, "stop_sequence": None}, "usage": usage},
            {"type": "message_stop"},
        )

    def _tool(self, action: Action) -> tuple[str, dict[str, Any]]:
        given = action.given
        match action.kind:
            case "claim" | "complete":
                return f"mcp__dibs__{action.kind}_task", dict(given)
            case "look":
                return "Read", {"file_path": given["path"]}
            case "edit":
                return "Edit", {"file_path": given["path"], "old_string": given["old"], "new_string": given["new"]}
            case "write":
                return "Write", {"file_path": given["path"], "content": given["text"] + "\n"}
            case _:
                return "Bash", {"command": given["command"], "description": "as the script says"}


class Responses:
    """OpenAI; Codex 0.166.0."""

    path = re.compile(r"/v1/responses$")
    aside = "All is well."

    def answers(self, body: dict[str, Any]) -> list[str]:
        outputs = [item["output"] for item in body["input"] if item["type"].endswith("_call_output")]
        return [_text(each) for each in outputs]

    def say(self, turn: Action | str, body: dict[str, Any], path: str) -> tuple[str, str]:
        number = next(_NUMBERS)
        if isinstance(turn, Action):
            item = {"call_id": f"call_{number}", "status": "completed", **self._tool(turn)}
        else:
            words = [{"type": "output_text", "text": turn, "annotations": []}]
            item = {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": words}
        usage = {"input_tokens": 9, "output_tokens": 9, "total_tokens": 18}
        response = {"id": f"resp_{number}", "object": "response"}
        return _STREAM, _events(
            {"type": "response.created", "response": {**response, "status": "in_progress"}},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": {**response, "status": "completed", "usage": usage}},
        )

    def _tool(self, action: Action) -> dict[str, Any]:
        given = action.given
        match action.kind:
            case "claim" | "complete":
                return _function(f"{action.kind}_task", dict(given), namespace="mcp__dibs")
            case "look":
                return _function("exec_command", {"cmd": f"cat {given['path']}"})
            case "edit":
                return _patch(f"*** Update File: {given['path']}\n@@\n-{given['old']}\n+{given['new']}")
            case "write":
                return _patch(f"*** Add File: {given['path']}\n+{given['text']}")
            case _:
                return _function("exec_command", {"cmd": given["command"]})


def _function(name: str, given: dict[str, Any], **more: str) -> dict[str, Any]:
    return {"type": "function_call", "name": name, "arguments": json.dumps(given), **more}


def _patch(hunk: str) -> dict[str, Any]:
    text = f"*** Begin Patch\n{hunk}\n*** End Patch\n"
    return {"type": "custom_tool_call", "name": "apply_patch", "input": text}


class Generate:
    """Gemini; Gemini CLI 0.61.0."""

    path = re.compile(r":(streamG|g)enerateContent$")
    aside = json.dumps({
        "reasoning": "it is over", "next_speaker": "user", "complexity_reasoning": "it is simple", "complexity_score": 1
    })  # fmt: skip
    """Answers who speaks next, and how hard the task is."""

    def answers(self, body: dict[str, Any]) -> list[str]:
        parts = [part for content in body["contents"] for part in content.get("parts", ())]
        found = [part["functionResponse"] for part in parts if part.get("functionResponse") is not None]
        return [_response(each["response"]) for each in found]

    def say(self, turn: Action | str, body: dict[str, Any], path: str) -> tuple[str, str]:
        part: dict[str, Any] = {"text": turn}
        if isinstance(turn, Action):
            name, given = self._tool(turn)
            part = {"functionCall": {"name": name, "args": given}}
        candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
        usage = {"promptTokenCount": 9, "candidatesTokenCount": 9, "totalTokenCount": 18}
        text = json.dumps({"candidates": [candidate], "usageMetadata": usage, "modelVersion": "scripted"})
        return (_STREAM, f"data: {text}\r\n\r\n") if "stream" in path else (_JSON, text)

    def _tool(self, action: Action) -> tuple[str, dict[str, Any]]:
        given = action.given
        match action.kind:
            case "claim" | "complete":
                return f"mcp_dibs_{action.kind}_task", dict(given)
            case "look":
                return "read_file", {"file_path": given["path"]}
            case "edit":
                words = {"old_string": given["old"], "new_string": given["new"], "instruction": "as the script says"}
                return "replace", {"file_path": given["path"], **words}
            case "write":
                return "write_file", {"file_path": given["path"], "content": given["text"] + "\n"}
            case _:
                return "run_shell_command", {"command": given["command"], "description": "as the script says"}


def _response(response: dict[str, Any]) -> str:
    said = response.get("output", response.get("error", response))
    return said if isinstance(said, str) else json.dumps(said)


WIRES: tuple[Wire, ...] = (Messages(), Responses(), Generate())
