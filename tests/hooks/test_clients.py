"""Each client's documented event, through the real command: who may edit, and what the client is told."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.hooks.repository import Repository, claude, codex, cursor, gemini, is_silent, reason

PATCH = "*** Begin Patch\n{}\n*** End Patch\n"


def edit_of(client: str, repo: Repository, path: str) -> dict[str, Any]:
    """An edit of a file in the second worktree."""
    target = str(repo.two / path)
    if client == "claude":
        return claude("Edit", repo.two, file_path=target, old_string="old", new_string="new")
    if client == "codex":
        return codex("apply_patch", repo.two, PATCH.format(f"*** Update File: {path}\n@@\n-old\n+new"))
    if client == "gemini":
        return gemini("replace", repo.two, file_path=target, old_string="old", new_string="new")
    return cursor("preToolUse", repo.two, tool_name="Write", tool_input={"file_path": target, "content": "new"})


@pytest.mark.parametrize("client", ["claude", "codex", "gemini", "cursor"])
class TestEveryClient:
    def test_what_another_worker_holds_is_denied_in_another_worktree(self, repo: Repository, client: str) -> None:
        why = reason(client, repo.hook(client, edit_of(client, repo, "a.py")))
        assert "a.py is held by bob until " in why
        assert f"unless renewed, in the worktree {repo.one}" in why
        assert "dibs lock a.py --wait 5m" in why
        assert "dibs tell bob 'what you need'" in why
        assert "dibs claim" in why

    def test_what_nobody_holds_passes_in_silence(self, repo: Repository, client: str) -> None:
        assert is_silent(client, repo.hook(client, edit_of(client, repo, "b.py")))

    def test_the_holders_own_edit_passes_in_silence(self, repo: Repository, client: str) -> None:
        event = edit_of(client, repo, "a.py")
        assert is_silent(client, repo.hook(client, event, DIBS_AGENT="bob", DIBS_SESSION="bobs"))

    def test_another_session_of_the_holders_name_is_another_worker(self, repo: Repository, client: str) -> None:
        why = reason(client, repo.hook(client, edit_of(client, repo, "a.py"), DIBS_AGENT="bob"))
        assert "a.py is held by another session of bob until" in why
        assert "DIBS_SESSION=http, see docs/agents.md" in why
        assert "dibs tell" not in why

    def test_a_shared_lock_of_others_denies_too(self, repo: Repository, client: str) -> None:
        assert "shared.py is shared by bob" in reason(client, repo.hook(client, edit_of(client, repo, "shared.py")))

    def test_a_file_below_a_locked_folder_is_denied(self, repo: Repository, client: str) -> None:
        why = reason(client, repo.hook(client, edit_of(client, repo, "src/deep/c.py")))
        assert "src/deep/c.py is held by bob (by a lock on src/deep/**)" in why

    @pytest.mark.parametrize("flag", ["--require-lock", "--closed"])
    def test_outside_the_repository_is_nobodys_business(self, repo: Repository, client: str, flag: str) -> None:
        assert is_silent(client, repo.hook(client, edit_of(client, repo, "../elsewhere.py"), flag))

    def test_unknown_events_and_tools_pass_in_silence(self, repo: Repository, client: str) -> None:
        event = edit_of(client, repo, "a.py")
        assert is_silent(client, repo.hook(client, event | {"tool_name": "Read"}))
        assert is_silent(client, repo.hook(client, event | {"hook_event_name": "PostToolUse"}))

    def test_with_require_lock_what_nobody_locked_is_denied(self, repo: Repository, client: str) -> None:
        event = edit_of(client, repo, "b.py")
        why = reason(client, repo.hook(client, event, "--require-lock"))
        assert "you have not locked b.py" in why
        assert "dibs lock b.py (MCP: lock_files)" in why

    @pytest.mark.parametrize("garbage", [b"", b"{", b"[1]", b"\xff\xfe", b'{"a": NaN}'])
    def test_garbage_passes_with_a_remark(self, repo: Repository, client: str, garbage: bytes) -> None:
        heard = repo.hook(client, garbage)
        assert (heard.code, heard.out) == (0, "{}\n" if client == "cursor" else "")
        assert heard.err.startswith("dibs: the client's event could not be read: ")

    def test_nothing_on_stdin_is_called_that(self, repo: Repository, client: str) -> None:
        heard = repo.hook(client, b"\n")
        assert heard.err.endswith("stdin was empty; the client's event is read from there\n")

    @pytest.mark.parametrize("words", [("--bogus",), ("extra",), ("--json", "--bogus")])
    def test_a_usage_error_does_not_look_like_a_block(self, repo: Repository, client: str, words: list[str]) -> None:
        heard = repo.hook(client, edit_of(client, repo, "b.py"), *words)
        assert (heard.code, heard.out) == (1, "")
        assert "usage" in heard.err

    def test_garbage_is_denied_by_a_closed_hook(self, repo: Repository, client: str) -> None:
        assert "nobody can tell who holds what" in reason(client, repo.hook(client, b"{", "--closed"))


def test_require_lock_is_content_with_a_lock_or_a_claimed_task(repo: Repository) -> None:
    me = {"DIBS_AGENT": "carol", "DIBS_SESSION": "c1"}
    repo.dibs("lock", "locked.py", cwd=repo.two, **me)
    task = repo.dibs("add", "a task", "--path", "mine/**", "--json").json["id"]
    repo.dibs("claim", task, **me)
    repo.dibs("lock", "--shared", "both.py", **me)
    for path, passes in (("locked.py", True), ("mine/new.py", True), ("both.py", False), (".git/info/exclude", True)):
        event = claude("Write", repo.two, file_path=str(repo.two / path), content="x")
        heard = repo.hook("claude", event, "--require-lock", **me)
        assert is_silent("claude", heard) is passes, (path, heard)
    denied = reason("claude", repo.hook("claude", edit_of("claude", repo, "mine/new.py")))
    assert f"mine/new.py is held by carol for task {task}" in denied
    repo.dibs("release", "--all", **me)


class TestPaths:
    @pytest.mark.parametrize(
        "spelling",
        ["a.py", "./a.py", "src/../a.py", "{two}/src/../a.py", "{main}/a.py", "{one}/a.py", "{link}/a.py", "alias.py"],
    )
    def test_every_spelling_is_the_same_file(self, repo: Repository, spelling: str, tmp_path: Path) -> None:
        link = tmp_path / "link"
        link.symlink_to(repo.two)
        alias = repo.two / "alias.py"
        if not alias.is_symlink():
            alias.symlink_to("a.py")
        path = spelling.format(two=repo.two, main=repo.main, one=repo.one, link=link)
        why = reason("claude", repo.hook("claude", claude("Write", repo.two, file_path=path, content="x")))
        assert "\n  a.py is held by bob" in why

    def test_relative_paths_start_at_the_events_folder_and_so_does_the_advice(self, repo: Repository) -> None:
        event = claude("Write", repo.two / "src", file_path="deep/c.py", content="x")
        why = reason("claude", repo.hook("claude", event, cwd=repo.folder))
        assert "src/deep/c.py is held by bob" in why
        assert "dibs lock deep/c.py --wait" in why

    def test_a_session_that_stands_above_the_repository_is_checked_too(self, repo: Repository) -> None:
        event = claude("Write", repo.folder, file_path=str(repo.two / "a.py"), content="x")
        assert "a.py is held by bob" in reason("claude", repo.hook("claude", event))

    def test_a_name_with_a_line_end_is_still_below_the_locked_folder(self, repo: Repository) -> None:
        event = claude("Write", repo.two, file_path=str(repo.two / "src/deep/a\nb"), content="x")
        assert "src/deep/a?b is held by bob" in reason("claude", repo.hook("claude", event))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """Another repository with a board, on which `bob` holds a.py; in it a submodule `lib` without one."""
    made = Repository(tmp_path_factory.mktemp("other"))
    made.prepare()
    made.git("clone", "-q", str(made.main), str(made.folder / "source"))
    made.add_submodule(made.folder / "source", "lib")
    made.bob("lock", "a.py", "lib/b.py", cwd=made.main)
    return made


class TestOtherRepositories:
    @pytest.mark.parametrize("command", [None, "rm b.py {path}", "cd {folder} && sed -i s/a/b/ a.py"])
    def test_a_file_with_a_board_of_its_own_is_asked_for_there(
        self, repo: Repository, other: Repository, command: str | None
    ) -> None:
        path = other.main / "a.py"
        event = claude("Write", repo.two, file_path=str(path), content="x")
        if command:
            event = claude("Bash", repo.two, command=command.format(path=path, folder=path.parent))
        for flags in ((), ("--closed",), ("--require-lock",)) if not command else ((),):
            why = reason("claude", repo.hook("claude", event, *flags))
            assert "\n  a.py is held by bob" in why
            assert f"Wait for it (in {other.main}): dibs lock a.py --wait 5m" in why
        named = {"DIBS_BOARD": f"sqlite:{repo.main}/.dibs/board.db"}
        assert "a.py is held by bob" in reason("claude", repo.hook("claude", event, **named))

    def test_what_nobody_holds_there_passes_and_needs_no_lock(self, repo: Repository, other: Repository) -> None:
        event = claude("Write", repo.two, file_path=str(other.main / "b.py"), content="x")
        assert is_silent("claude", repo.hook("claude", event, "--closed", "--require-lock"))

    def test_a_board_there_that_cannot_be_read_leaves_doubt(self, repo: Repository, tmp_path: Path) -> None:
        (tmp_path / ".dibs").mkdir()
        (tmp_path / ".dibs" / "board.db").write_bytes(b"damaged")
        event = claude("Write", repo.two, file_path=str(tmp_path / "x"), content="x")
        assert "not checked" in repo.hook("claude", event).json["systemMessage"]
        assert "nobody can tell" in reason("claude", repo.hook("claude", event, "--closed"))

    def test_a_submodule_without_a_board_is_a_folder_of_the_repository_around_it(self, other: Repository) -> None:
        lib = other.main / "lib"
        event = claude("Write", lib, file_path="b.py", content="x")
        assert "lib/b.py is held by bob" in reason("claude", other.hook("claude", event, cwd=lib))
        free = claude("Write", lib, file_path="a.py", content="x")
        assert is_silent("claude", other.hook("claude", free, "--closed", cwd=lib))


def test_where_case_does_not_count_two_spellings_are_one_file(tmp_path: Path) -> None:
    made = Repository(tmp_path)
    made.prepare()
    made.git("config", "core.ignorecase", "true")
    made.bob("lock", "Mixed.py")
    assert "is held by bob" in reason("claude", made.hook("claude", edit_of("claude", made, "mIXED.PY")))
    me = {"DIBS_AGENT": "me", "DIBS_SESSION": "m"}
    made.dibs("lock", "Own.py", **me)
    assert is_silent("claude", made.hook("claude", edit_of("claude", made, "own.PY"), "--require-lock", **me))


class TestClaude:
    def test_a_notebook(self, repo: Repository) -> None:
        event = claude("NotebookEdit", repo.two, notebook_path=str(repo.two / "note.ipynb"), new_source="1")
        assert "note.ipynb is held by bob" in reason("claude", repo.hook("claude", event))

    def test_several_edits(self, repo: Repository) -> None:
        edits = [{"old_string": "old", "new_string": "new"}, {"file_path": str(repo.two / "src/deep/c.py")}]
        event = claude("MultiEdit", repo.two, file_path=str(repo.two / "a.py"), edits=edits)
        why = reason("claude", repo.hook("claude", event))
        assert "a.py is held by bob" in why
        assert "src/deep/c.py is held by bob" in why

    @pytest.mark.parametrize(
        "command",
        [
            "echo x > a.py",
            "cd src/deep && sed -i s/a/b/ c.py",
            "rm -rf src",
            "git checkout -- .",
            "rm *.py",
            "mv b.py a.py",
        ],
    )
    def test_shell_writes(self, repo: Repository, command: str) -> None:
        event = claude("Bash", repo.two, command=command, description="x")
        assert "is held by bob" in reason("claude", repo.hook("claude", event))

    @pytest.mark.parametrize(
        "command", ["cat a.py", "git status", "echo x > b.py", "echo '> a.py'", "rm $X", "rm ../a.py"]
    )
    def test_other_shell_commands(self, repo: Repository, command: str) -> None:
        assert is_silent("claude", repo.hook("claude", claude("Bash", repo.two, command=command)))

    def test_an_event_is_answered_before_the_pipe_is_closed(self, repo: Repository) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "dibs", "hook", "claude"],
            cwd=repo.two,
            env=repo.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        data = json.dumps(edit_of("claude", repo, "a.py")).encode()
        process.stdin.write(data[:50])
        process.stdin.flush()
        process.stdin.write(data[50:])
        process.stdin.flush()
        assert b"held by bob" in process.stdout.read()
        assert process.wait(60) == 0
        process.stdin.close()
        process.stdout.close()


class TestCodex:
    def test_a_patch_of_several_files_names_every_conflict(self, repo: Repository) -> None:
        hunks = (
            "*** Add File: new.py\n+x\n*** Delete File: a.py\n*** Update File: b.py\n"
            "*** Move to: src/deep/e.py\n@@\n context\n *** Update File: note.ipynb\n-old\n+new"
        )
        why = reason("codex", repo.hook("codex", codex("apply_patch", repo.two, PATCH.format(hunks))))
        assert "a.py is held by bob" in why
        assert "src/deep/e.py is held by bob" in why
        for passes in ("new.py", "b.py", "note.ipynb"):
            assert f" {passes} is " not in why

    def test_its_shell(self, repo: Repository) -> None:
        assert "a.py is held by bob" in reason("codex", repo.hook("codex", codex("Bash", repo.two, "echo x >> a.py")))

    def test_a_program_with_its_arguments(self, repo: Repository) -> None:
        patch = PATCH.format("*** Delete File: a.py")
        event = codex("shell", repo.two, ["bash", "-lc", f"apply_patch <<'E'\n{patch}E"])
        assert "a.py is held by bob" in reason("codex", repo.hook("codex", event))


class TestGemini:
    def test_write_file_and_its_shell_with_a_folder(self, repo: Repository) -> None:
        event = gemini("write_file", repo.two, file_path=str(repo.two / "a.py"), content="x")
        assert "a.py is held by bob" in reason("gemini", repo.hook("gemini", event))
        event = gemini("run_shell_command", repo.two, command="rm c.py", dir_path="src/deep")
        assert "src/deep/c.py is held by bob" in reason("gemini", repo.hook("gemini", event))


class TestCursor:
    def test_its_shell_event(self, repo: Repository) -> None:
        event = cursor("beforeShellExecution", repo.two, command="rm a.py", cwd=str(repo.two), sandbox=False)
        assert "a.py is held by bob" in reason("cursor", repo.hook("cursor", event))
        assert is_silent("cursor", repo.hook("cursor", event | {"command": "ls a.py"}))

    def test_deleting_and_a_patch_as_plain_text(self, repo: Repository) -> None:
        event = cursor("preToolUse", repo.two, tool_name="Delete", tool_input={"file_path": str(repo.two / "a.py")})
        assert "a.py is held by bob" in reason("cursor", repo.hook("cursor", event))
        event = cursor("preToolUse", repo.two, tool_name="ApplyPatch", tool_input=PATCH.format("*** Delete File: a.py"))
        assert "a.py is held by bob" in reason("cursor", repo.hook("cursor", event))

    def test_after_an_edit_there_is_nothing_to_deny(self, repo: Repository) -> None:
        event = cursor("afterFileEdit", repo.two, file_path=str(repo.two / "a.py"), edits=[])
        assert is_silent("cursor", repo.hook("cursor", event))

    def test_the_hooks_of_claude_code_answer_cursor_in_its_own_form(self, repo: Repository) -> None:
        event = cursor("preToolUse", repo.two, tool_name="Write", tool_input={"file_path": str(repo.two / "a.py")})
        assert "a.py is held by bob" in reason("cursor", repo.hook("claude", event))

    def test_a_byte_order_mark_is_no_garbage(self, repo: Repository) -> None:
        data = b"\xef\xbb\xbf" + json.dumps(edit_of("cursor", repo, "a.py")).encode()
        assert "a.py is held by bob" in reason("cursor", repo.hook("cursor", data))


def test_an_unknown_client_is_a_usage_error(repo: Repository) -> None:
    heard = repo.hook("emacs", {})
    assert heard.code == 1  # 2 would forbid the edit
    assert "claude, codex, gemini, cursor, git" in heard.err


def test_a_lock_of_a_dead_process_stands_in_nobodys_way(repo: Repository) -> None:
    code = "import os; from dibs import TaskBoard; TaskBoard.open().lock(['dead.py'], 'gone'); os.kill(os.getpid(), 9)"
    repo.run(sys.executable, "-c", code)
    assert "gone dead.py" in repo.locks()
    assert is_silent("claude", repo.hook("claude", edit_of("claude", repo, "dead.py")))
