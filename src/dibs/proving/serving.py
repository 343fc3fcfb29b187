"""Starting a client's MCP server as configured, with the official client of the protocol, and asking it a few things.

What is asked only reads. The server ends with the connection; one that does not is killed, with all that it started.
"""

from __future__ import annotations

import os

from dibs.proving.running import last_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import Any

    from dibs.proving.configured import Server

PATIENCE = 15.0
_GARBAGE = 20
"""So many lines that are no messages, and the rest is not waited for."""


class Answers:
    """What a server answered; `fault` says why it is no use, if so."""

    def __init__(self) -> None:
        self.fault: str | None = None
        self.worker = ""
        self.tools: list[str] = []
        self.board: dict[str, Any] = {}
        self.seconds = 0.0


async def ask(
    server: Server, folder: str, around: Mapping[str, str], meanwhile: Callable[[Answers], Awaitable[None]]
) -> Answers:
    """Connect, ask, and do something `meanwhile` while the server is there. `folder` is for what it says on stderr."""
    import logging
    import time

    import anyio
    from mcp import Client, StdioServerParameters, stdio_client

    logging.getLogger("mcp").setLevel(logging.CRITICAL + 1)  # a server's garbage is told once, by us
    answers, garbage = Answers(), _Garbage()
    log = os.path.join(folder, "server")
    begun = time.monotonic()
    parameters = StdioServerParameters(
        command=server.argv[0], args=server.argv[1:], env=server.environment(around), cwd=server.cwd
    )
    try:
        with open(log, "w", encoding="utf-8") as errlog, anyio.CancelScope() as scope:
            garbage.scope = scope
            scope.deadline = anyio.current_time() + PATIENCE
            transport = stdio_client(parameters, errlog=errlog)
            async with Client(transport, mode="legacy", message_handler=garbage.take) as client:
                await _questions(client, answers)
                answers.seconds = time.monotonic() - begun
                scope.deadline = float("inf")
                if answers.fault is None:
                    await meanwhile(answers)
        if scope.cancelled_caught:
            answers.fault = f"it did not answer within {PATIENCE:g} s"
    except Exception as error:
        answers.fault = _why(error)
    if answers.fault is not None:
        with open(log, encoding="utf-8", errors="replace") as said:
            text = said.read(1 << 20)
        answers.fault += (f"; it prints what is no MCP: {garbage.first}" if garbage.count else "") + last_lines(text)
    return answers


class _Garbage:
    """Lines on stdout that are no messages."""

    def __init__(self) -> None:
        self.count = 0
        self.first = ""
        self.scope: Any = None

    async def take(self, message: object) -> None:
        if isinstance(message, Exception):
            self.count += 1
            self.first = self.first or _input(message)
            if self.count >= _GARBAGE:
                self.scope.cancel()


def _input(error: Exception) -> str:
    """The line that could not be read, as far as the error tells."""
    try:
        return repr(error.errors()[0]["input"])[:80]  # type: ignore[attr-defined]
    except (AttributeError, IndexError, KeyError, TypeError):
        return str(error).splitlines()[0][:80]


async def _questions(client: Any, answers: Answers) -> None:
    from dibs.jsontext import loads
    from dibs.mcp.tools import TOOLS

    answers.tools = [tool.name for tool in (await client.list_tools()).tools]
    missing = [tool[0] for tool in TOOLS if tool[0] not in answers.tools]
    if missing:
        answers.fault = f"it lacks {len(missing)} of the {len(TOOLS)} tools: {', '.join(missing)}"
        return
    listed = await client.call_tool("list_tasks", {"limit": 1})
    content = listed.structured_content or {}
    if listed.is_error and content.get("code") != "unsupported":
        answers.fault = f"list_tasks failed: {content.get('error') or listed.content[0].text}"
        return
    board = (await client.read_resource("dibs://board")).contents[0]
    shown = loads(board.text)
    if isinstance(shown, dict):
        answers.board = shown
        answers.worker = str(shown.get("you") or "")


def _why(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, FileNotFoundError | PermissionError | NotADirectoryError):
        return f"it cannot be started: {error.filename}: {error.strerror}"
    if isinstance(error, OSError):
        return f"it cannot be started: {error.strerror or error}"
    text = str(error).strip() or type(error).__name__
    return "it ended without an answer" if "closed" in text.lower() else f"it answered with an error: {text[:200]}"
