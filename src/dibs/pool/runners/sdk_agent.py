"""One agent through the Claude Agent SDK: `python -P -m dibs.pool.runners.sdk_agent OPTIONS.json`, the prompt on stdin.

Prints what the agent says as it comes, and the tools that it calls, one line each. Exit code 0 if the SDK's result says
that it went well, else 1, with the reason on stderr. It holds nothing: the agent's MCP server does, and gives it back.

Written for claude-agent-sdk 0.2.182 (types.py, _internal/transport/subprocess_cli.py).
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

LARGEST = 64 << 20
"""Bytes of one message; the SDK gives up at 1 MiB, which one picture or long file can exceed."""


async def work(prompt: str, told: dict[str, Any]) -> int:
    import claude_agent_sdk as sdk  # type: ignore[import-not-found,unused-ignore]

    options = sdk.ClaudeAgentOptions(
        # Left out, it would be an agent without the instructions, the memory and the settings that `claude` has.
        system_prompt={"type": "preset", "preset": "claude_code"},
        setting_sources=["user", "project", "local"],
        max_buffer_size=LARGEST,
        **{name: value for name, value in told.items() if value is not None},
    )
    result: Any = None
    async for message in sdk.query(prompt=prompt, options=options):
        if isinstance(message, sdk.AssistantMessage):
            for block in message.content:
                if isinstance(block, sdk.TextBlock):
                    print(block.text, flush=True)
                elif isinstance(block, sdk.ToolUseBlock):
                    print(f"[{block.name}]", flush=True)
        elif isinstance(message, sdk.ResultMessage):
            result = message
    if result is None:
        return failed("Claude Code ended without a result")
    if result.is_error:
        return failed(result.result or "; ".join(result.errors or ()) or result.subtype)
    return 0


def failed(why: str) -> int:
    print(f"the agent failed: {why}", file=sys.stderr, flush=True)
    return 1


def main() -> int:
    [path] = sys.argv[1:]
    with open(path, encoding="utf-8") as file:
        told = json.load(file)
    prompt = sys.stdin.buffer.read().decode("utf-8")
    try:
        return asyncio.run(work(prompt, told))
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # the SDK's own errors, and whatever a newer one raises: their text says what it was
        return failed(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    sys.exit(main())
