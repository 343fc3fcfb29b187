"""An agent that speaks MCP, and holds each task until `go` is noted: `python holding.py MCP-CONFIG`.

It speaks the protocol itself: the official client, with which `speaking` does, takes a second to import.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

NAP = 0.05


class Server:
    def __init__(self, config: str) -> None:
        told = json.loads(Path(config).read_text())["mcpServers"]["dibs"]
        env = {**os.environ, **told["env"]}
        self._process = subprocess.Popen(
            [told["command"], *told["args"]], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        about = {"name": "holding", "version": "1"}
        self.ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=about)
        self._send(method="notifications/initialized")

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self.ask("tools/call", name=tool, arguments=arguments)["structuredContent"]
        return answer

    def ask(self, method: str, **params: Any) -> Any:
        self._send(id=1, method=method, params=params)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            if said.get("id") == 1:
                return said["result"]
        raise SystemExit(f"the server ended during {method}")

    def _send(self, **message: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        self._process.communicate(timeout=60)


def main(config: str) -> None:
    server = Server(config)
    while (task := server.call("claim_task"))["claimed"] or task["team"] != "over":
        while task["claimed"] and not (Path(os.environ["POOL_NOTES"]) / "go").exists():
            time.sleep(NAP)
        if task["claimed"]:
            server.call("complete_task", task_id=task["task_id"], token=task["token"])
    server.close()


if __name__ == "__main__":
    main(sys.argv[1])
