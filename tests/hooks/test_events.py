"""Reading events and patches: whatever a client sends, and nothing that a hook says ever allows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.hooks import answers, patches
from dibs.hooks.events import EDIT, END, OTHER, START, Event, read
from tests.hooks.repository import claude, codex, cursor, gemini, session

HERE = "/r"
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=10)
    | st.sampled_from(["/r/a", "rm x", "\0", "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = ["PreToolUse", "BeforeTool", "preToolUse", "beforeShellExecution", "SessionStart", "SessionEnd", "Stop"]
TOOLS = ["Edit", "Write", "MultiEdit", "NotebookEdit", "Bash", "apply_patch", "replace", "run_shell_command", "Shell"]
FIELDS = ["file_path", "path", "notebook_path", "command", "edits", "input", "workdir", "dir_path"]
DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "hook_event_name": st.sampled_from(NAMES) | VALUES,
        "tool_name": st.sampled_from(TOOLS) | VALUES,
        "tool_input": st.dictionaries(st.sampled_from(FIELDS), VALUES) | VALUES,
        "cwd": VALUES,
        "session_id": VALUES,
        "conversation_id": VALUES,
        "workspace_roots": VALUES,
        "command": VALUES,
        "reason": VALUES,
        "cursor_version": VALUES,
    },
)


@given(st.sampled_from(["claude", "codex", "gemini", "cursor"]), DOCUMENTS | VALUES)
def test_no_document_is_too_strange(client: str, document: Any) -> None:
    if not isinstance(document, dict):
        with pytest.raises(ValueError, match="not a JSON object"):
            read(client, document, HERE)
        return
    event = read(client, document, HERE)
    assert event.kind in (EDIT, START, END, OTHER)
    assert event.kind == EDIT or event.paths == []
    assert all(path.startswith("/") and "\0" not in path for path in [event.folder, *event.paths])
    said = [answers.silence(event), answers.deny(event, "no"), answers.warn(event, "w"), answers.prime(event, "p")]
    for answer in said:
        words = json.dumps(answer).replace(json.dumps(event.name), "")
        assert not any(f'"{word}"' in words for word in ("allow", "approve", "ask", "continue"))


@pytest.mark.parametrize(
    ("client", "document", "kind", "name"),
    [
        ("claude", claude("Edit", Path("/w"), file_path="a"), EDIT, "5f1c9f0e"),
        ("codex", codex("Bash", Path("/w"), "rm a"), EDIT, "019a-33"),
        ("gemini", gemini("write_file", Path("/w"), file_path="a"), EDIT, "gem-1"),
        ("cursor", cursor("beforeShellExecution", Path("/w"), command="rm a"), EDIT, "668320d2-2fd8"),
        (
            "cursor",
            cursor("preToolUse", Path("/w"), tool_name="StrReplace", tool_input={"path": "a"}),
            EDIT,
            "668320d2-2fd8",
        ),
        (
            "cursor",
            cursor("preToolUse", Path("/w"), tool_name="Shell", tool_input={"command": "rm a"}),
            EDIT,
            "668320d2-2fd8",
        ),
        ("claude", session("SessionStart", Path("/w"), "s", source="compact"), START, "s"),
        ("gemini", session("SessionEnd", Path("/w"), "s", reason="exit"), END, "s"),
        ("cursor", cursor("stop", Path("/w"), status="completed"), OTHER, "668320d2-2fd8"),
    ],
)
def test_documented_events(client: str, document: dict[str, Any], kind: str, name: str) -> None:
    event = read(client, document, HERE)
    assert (event.client, event.kind, event.session, event.folder) == (client, kind, name, "/w")
    assert event.paths == (["/w/a"] if kind == EDIT else [])


@pytest.mark.parametrize("strange", ["", " s", "a\nb", "x" * 300, 7, None])
def test_a_session_that_no_board_would_take_is_no_session(strange: object) -> None:
    assert read("claude", {"session_id": strange}, HERE).session is None


def test_an_event_without_a_folder_is_about_ours() -> None:
    assert read("claude", {"hook_event_name": "PreToolUse"}, HERE).folder == HERE
    assert read("cursor", {"workspace_roots": ["/w", "/v"]}, HERE).folder == "/w"
    assert isinstance(read("cursor", {"workspace_roots": []}, HERE), Event)


def test_a_patch_names_its_files_once_and_not_the_lines_of_its_files() -> None:
    text = (
        "*** Begin Patch\n*** Update File: a b.py\n*** Move to: c.py\n@@ def f():\n"
        " *** Add File: not.py\n-*** Delete File: x\n+*** Add File: y\n"
        "*** Add File:  d.py \n+*** Add File: z\n*** Delete File: e.py\r\n*** Delete File: e.py\n*** End Patch"
    )
    assert patches.paths(text) == ["a b.py", "c.py", "d.py", "e.py"]
    assert patches.is_patch(text)
    assert patches.paths("") == patches.paths("*** Add File:\n") == []
