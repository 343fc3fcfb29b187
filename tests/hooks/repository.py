"""What the tests of hooks share: a repository with linked worktrees and a board, and `dibs hook` run as clients do.

The event builders make the documents that the clients' manuals describe, with every field that they promise.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.cli.shell import PATIENCE, Result, environment


class Repository:
    """`main` is the main worktree, `one` and `two` are linked to it; `bob` works in the first of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.main, self.one, self.two = folder / "main", folder / "one", folder / "two"
        (folder / "run").mkdir()
        (folder / "home").mkdir()
        self.env = {
            name: value for name, value in environment(DIBS_HOOK_WAIT="60").items() if not name.startswith("GIT_")
        } | {
            "HOME": str(folder / "home"),
            "DIBS_RUNTIME_DIR": str(folder / "run" / "dibs-clients"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_AUTHOR_NAME": "t",
            "GIT_AUTHOR_EMAIL": "t@example.org",
            "GIT_COMMITTER_NAME": "t",
            "GIT_COMMITTER_EMAIL": "t@example.org",
        }

    def prepare(self) -> None:
        self.main.mkdir()
        self.git("init", "-q", "-b", "trunk")
        for name in ("a.py", "b.py", "src/deep/c.py", "src/d.py", "note.ipynb"):
            path = self.main / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("old\n")
        self.git("add", ".")
        self.git("commit", "-qm", "first")
        self.git("worktree", "add", "-q", str(self.one))
        self.git("worktree", "add", "-q", str(self.two))
        self.dibs("init")

    def add_submodule(self, source: Path, name: str) -> None:
        self.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(source), name)

    def git(self, *words: str, cwd: Path | str | None = None, **env: str) -> str:
        done = self.try_git(*words, cwd=cwd, **env)
        assert done.code == 0, done
        return done.out

    def try_git(self, *words: str, cwd: Path | str | None = None, **env: str) -> Result:
        return self.run("git", *words, cwd=cwd, **env)

    def run(self, *command: str, stdin: bytes | str = b"", cwd: Path | str | None = None, **env: str) -> Result:
        done = subprocess.run(
            command,
            cwd=cwd or self.main,
            env=self.env | env,
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    def dibs(self, *words: str, cwd: Path | str | None = None, **env: str) -> Result:
        done = self.run(sys.executable, "-m", "dibs", *words, cwd=cwd, **env)
        assert done.code == 0, done
        return done

    def bob(self, *words: str, cwd: Path | str | None = None) -> Result:
        """A command of the other worker, in its own worktree."""
        return self.dibs("--as", "bob", *words, cwd=cwd or self.one, DIBS_SESSION="bobs")

    def hook(self, client: str, event: object, *flags: str, cwd: Path | str | None = None, **env: str) -> Result:
        """`dibs hook CLIENT`, started where clients start it, with the event on stdin."""
        data = event if isinstance(event, bytes) else json.dumps(event).encode()
        return self.run(sys.executable, "-m", "dibs", "hook", client, *flags, stdin=data, cwd=cwd or self.two, **env)

    def locks(self) -> list[str]:
        listed = self.dibs("locks", "--json").json["locks"]
        return sorted(f"{lock['holder']} {lock['pattern']}" for lock in listed)


def claude(tool: str, cwd: Path, session: str = "5f1c9f0e", **tool_input: Any) -> dict[str, Any]:
    return {
        "session_id": session,
        "transcript_path": "/home/me/.claude/projects/x/5f1c9f0e.jsonl",
        "cwd": str(cwd),
        "permission_mode": "default",
        "hook_event_name": "PreToolUse",
        "tool_name": tool,
        "tool_input": tool_input,
        "tool_use_id": "toolu_01ABC123",
    }


def codex(tool: str, cwd: Path, command: object, session: str = "019a-33") -> dict[str, Any]:
    return {
        "session_id": session,
        "turn_id": "turn-1",
        "transcript_path": None,
        "cwd": str(cwd),
        "hook_event_name": "PreToolUse",
        "model": "a-model",
        "permission_mode": "default",
        "tool_name": tool,
        "tool_input": {"command": command},
        "tool_use_id": "call-1",
    }


def gemini(tool: str, cwd: Path, session: str = "gem-1", **tool_input: Any) -> dict[str, Any]:
    return {
        "session_id": session,
        "transcript_path": "/home/me/.gemini/tmp/x/chats/session.json",
        "cwd": str(cwd),
        "hook_event_name": "BeforeTool",
        "timestamp": "2026-11-16T02:00:00.000Z",
        "tool_name": tool,
        "tool_input": tool_input,
    }


def cursor(event: str, root: Path, session: str = "668320d2-2fd8", **more: Any) -> dict[str, Any]:
    return {
        "conversation_id": session,
        "generation_id": "490b90b7",
        "model": "a-model",
        "hook_event_name": event,
        "cursor_version": "3.11.25",
        "workspace_roots": [str(root)],
        "user_email": None,
        "transcript_path": None,
        **more,
    }


def session(name: str, cwd: Path, session: str, **more: Any) -> dict[str, Any]:
    """SessionStart and SessionEnd, which three of the clients have in common."""
    return {"session_id": session, "transcript_path": None, "cwd": str(cwd), "hook_event_name": name, **more}


def reason(client: str, result: Result) -> str:
    """Why an edit was denied, from the place where the client looks for it; nothing else may have been said."""
    assert result.code == 0, result
    assert result.err == "", result
    said = result.json
    if client == "cursor":
        why = said["agent_message"]
        assert said == {"permission": "deny", "user_message": why, "agent_message": why}
        return str(why)
    if client == "gemini":
        assert said == {"decision": "deny", "reason": said["reason"]}
        return str(said["reason"])
    why = said["hookSpecificOutput"]["permissionDecisionReason"]
    specific = {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": why}
    assert said == {"hookSpecificOutput": specific}
    return str(why)


def is_silent(client: str, result: Result) -> bool:
    return (result.code, result.out, result.err) == (0, "{}\n" if client == "cursor" else "", "")
