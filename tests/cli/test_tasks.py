"""Adding tasks, deciding about them, and looking at them."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from dibs import TaskBoard
from tests.cli.shell import Shell, width


def test_init_makes_a_board_once(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    assert shell("list").code == 1
    assert "dibs init" in shell("list").err
    made = shell.ok("init", "--json").json
    assert made == {"board": f"sqlite:{tmp_path.resolve()}/.dibs/board.db", "created": True}
    shell.add("keep me")
    again = shell.ok("init", "--json").json
    assert again["created"] is False
    assert "nothing was changed" in shell.ok("init").out
    assert shell.ok("list", "--json").json["total"] == 1
    assert (tmp_path / ".dibs" / ".gitignore").read_text() == "*\n"


def test_init_never_overwrites(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    (tmp_path / ".dibs").mkdir()
    (tmp_path / ".dibs" / "board.db").write_text("something else")
    (tmp_path / ".dibs" / ".gitignore").write_text("mine\n")
    refused = shell("init")
    assert refused.code == 1
    assert "left as it is" in refused.err
    assert (tmp_path / ".dibs" / "board.db").read_text() == "something else"
    assert (tmp_path / ".dibs" / ".gitignore").read_text() == "mine\n"


def test_init_where_the_url_says(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.ok("init", "--board", "sqlite:elsewhere/team.db")
    assert (tmp_path / "elsewhere" / "team.db").exists()
    assert not (tmp_path / "elsewhere" / ".gitignore").exists()
    shell.ok("add", "x", DIBS_BOARD="sqlite:elsewhere/team.db")
    assert shell.ok("list", "--json", "--board", "elsewhere/team.db").json["total"] == 1


def test_all_that_a_task_can_be_given(shell: Shell) -> None:
    shell.add("the whole", "--id", "whole")
    shell.add("first this", "--id", "first")
    task = shell.ok(
        "add", "Write", "the", "page", "-p", "7", "--needs", "fir", "--path", "src/**", "--path", "docs/a.md",
        "--label", "web", "--label", "now", "--step", "draft", "--step", "polish", "--parent", "who",
        "--for", "human", "--review", "--max-attempts", "2", "--id", "page", "--json",
    ).json  # fmt: skip
    expected = {
        "id": "page", "description": "Write the page", "priority": 7, "depends_on": ["first"],
        "paths": ["src/**", "docs/a.md"], "labels": ["web", "now"], "parent": "whole", "reserved": "human",
        "review": True, "max_attempts": 2, "created_by": "worker-1", "status": "pending",
    }  # fmt: skip
    assert {key: task[key] for key in expected} == expected
    assert [step["title"] for step in task["steps"]] == ["draft", "polish"]


def test_a_description_from_stdin(shell: Shell) -> None:
    task = shell.ok("add", "-", "--json", stdin="Line one\n\nLine three: 'quotes' and $dollars\n").json
    assert task["description"] == "Line one\n\nLine three: 'quotes' and $dollars"
    assert shell("add", "-", stdin=b"\xff\xfe").code == 1
    assert shell("add", "-", stdin="").code == 1
    assert shell("add", "-", stdin="x" * 70_000).code == 1
    assert shell("add").code == 2


def test_what_no_board_accepts_is_refused(shell: Shell) -> None:
    for words in (
        ("x", "--needs", "nosuch"),
        ("x", "--parent", "nosuch"),
        ("x", "--id", "bad id"),
        ("x", "--path", "/outside/of/it"),
        ("   ",),
        ("x", "--max-attempts", "-1"),
    ):
        refused = shell("add", *words, "--json")
        assert refused.code == 1, words
        assert refused.error["code"] in ("invalid", "not_found")
    shell.add("x", "--id", "twice")
    assert shell("add", "y", "--id", "twice", "--json").error["code"] == "duplicate"
    assert shell.ok("list", "--json", "--all").json["total"] == 1


class TestFiles:
    def test_thousands_in_one_transaction_and_fast(self, shell: Shell) -> None:
        lines = "\n".join(json.dumps({"description": f"task {n}", "priority": n % 5}) for n in range(5000))
        started = time.monotonic()
        added = shell.ok("add", "--file", "-", "--json", stdin=lines).json
        assert time.monotonic() - started < 20
        assert added["total"] == len(set(added["ids"])) == 5000
        assert shell.ok("list", "--json").json["total"] == 5000

    def test_an_error_names_its_line_and_nothing_is_added(self, shell: Shell) -> None:
        good = [json.dumps({"description": f"task {n}", "id": f"t{n}"}) for n in range(1, 5001)]
        path = shell.folder / "tasks.jsonl"
        for bad, why in [
            ("{not json", "not a JSON object or string"),
            ("42", "a task is a JSON object or string, not int"),
            ('{"description": ""}', "description is empty"),
            ('{"title": "x"}', "no 'title'"),
            ('{"description": "x", "depends_on": ["nosuch"]}', "Task not found: nosuch"),
            ('{"description": "x", "id": "t17"}', "given twice"),
            ('{"description": "x", "paths": ["/etc"]}', "/etc"),
        ]:
            lines = good.copy()
            lines[4320] = bad
            path.write_text("\n".join(lines) + "\n")
            refused = shell("add", "--file", "tasks.jsonl")
            assert refused.code == 1, bad
            assert "tasks.jsonl, line 4321: " in refused.err, refused
            assert why in refused.err, refused
            assert "nothing was added" in refused.err
            assert shell.ok("list", "--json").json["total"] == 0

    def test_lines_may_be_strings_objects_or_blank_and_refer_to_each_other(self, shell: Shell) -> None:
        text = (
            '"plain text"\r\n\n{"description": "b", "id": "b", "depends_on": ["c"]}\n{"description": "c", "id": "c"}\n'
        )
        assert shell.ok("add", "--file", "-", "--json", stdin="\ufeff" + text).json["ids"][1:] == ["b", "c"]
        assert shell("claim", "b").code == 1

    def test_a_json_array(self, shell: Shell) -> None:
        path = shell.folder / "tasks.json"
        path.write_text('[\n  "one",\n  {"description": "two", "steps": ["a", "b"]}\n]\n')
        assert shell.ok("add", "--file", "tasks.json", "--json").json["total"] == 2
        path.write_text('["one", 2]')
        assert "entry 2: a task is" in shell("add", "--file", "tasks.json").err
        path.write_text('["one", {"description": "x", "priority": "high"}]')
        assert "entry 2: priority must be" in shell("add", "--file", "tasks.json").err
        path.write_text('["one"')
        assert "not a JSON array" in shell("add", "--file", "tasks.json").err
        assert shell.ok("list", "--json").json["total"] == 2

    def test_files_that_cannot_be_used(self, shell: Shell) -> None:
        assert "No such file" in shell("add", "--file", "nosuch").err
        assert shell("add", "--file", ".").code == 1
        assert "holds no task" in shell("add", "--file", "-", stdin="\n\n").err
        assert "line 2: not UTF-8" in shell("add", "--file", "-", stdin=b'"a"\n"\xff"\n').err
        assert shell("add", "--file", "-", "also", "words").code == 2
        assert "--priority" in shell("add", "--file", "-", "-p", "3").err
        assert "[" * 10 not in shell("add", "--file", "-", stdin="[" * 100_000).err

    def test_a_request_key_makes_a_file_repeatable(self, shell: Shell) -> None:
        first = shell.ok("add", "--file", "-", "--key", "import-7", "--json", stdin='"a"\n"b"\n').json
        again = shell.ok("add", "--file", "-", "--key", "import-7", "--json", stdin='"a"\n"b"\n').json
        assert again == first
        assert shell.ok("list", "--json").json["total"] == 2


class TestLists:
    @pytest.fixture
    def many(self, shell: Shell) -> Shell:
        lines = [{"description": f"task {n}", "labels": ["odd"] if n % 2 else []} for n in range(120)]
        shell.ok("add", "--file", "-", stdin="\n".join(map(json.dumps, lines)))
        return shell

    def test_a_list_says_what_it_left_out(self, many: Shell) -> None:
        out = many.ok("list").out
        assert len(out.splitlines()) == 52
        assert out.endswith("50 of 120 shown; next: --offset 50; all: --limit 0\n")
        page = many.ok("list", "--json").json
        assert (len(page["tasks"]), page["total"], page["more"]) == (50, 120, True)
        last = many.ok("list", "--json", "--offset", "100").json
        assert (len(last["tasks"]), last["total"], last["more"]) == (20, 120, False)
        assert "20 of 120 shown" in many.ok("list", "--offset", "100").out
        everything = many.ok("list", "--json", "--limit", "0").json
        assert (len(everything["tasks"]), everything["more"]) == (120, False)
        assert many.ok("list", "-n", "3", "--json").json["more"] is True
        assert many("list", "-n", "-3").code == 2
        assert many("list", "--offset", "-3").code == 2

    def test_ready_says_what_it_left_out(self, many: Shell) -> None:
        assert "there are more" in many.ok("ready").out
        page = many.ok("ready", "--json").json
        assert (len(page["tasks"]), page["total"], page["more"]) == (50, None, True)
        page = many.ok("ready", "--json", "--all").json
        assert (len(page["tasks"]), page["total"], page["more"]) == (120, 120, False)

    def test_filters(self, many: Shell) -> None:
        assert many.ok("list", "--label", "odd", "--json").json["total"] == 60
        assert many.ok("list", "--search", "task 11", "--json").json["total"] == 11
        many.ok("claim", "-n", "2")
        many.ok("claim", "--as", "bob")
        assert many.ok("list", "--mine", "--json").json["total"] == 2
        assert many.ok("list", "--by", "bob", "--json").json["total"] == 1
        assert many.ok("list", "--status", "in_progress", "--json").json["total"] == 3
        assert many("list", "--mine", "--by", "bob").code == 2
        part = many.add("part", "--parent", many.ok("list", "--by", "bob", "--json").json["tasks"][0]["id"])
        whole = many.ok("show", part, "--json").json["parent"]
        assert [t["id"] for t in many.ok("list", "--parent", whole[:7], "--json").json["tasks"]] == [part]

    def test_closed_tasks_are_counted_and_shown_when_asked_for(self, shell: Shell) -> None:
        assert "board is empty" in shell.ok("list").out
        for verb in ("done", "fail", "cancel", "leave"):
            shell.add(verb, "--id", verb)
        shell.ok("claim", "done")
        shell.ok("done")
        shell.ok("claim", "fail")
        shell.ok("fail", "fail", "because")
        shell.ok("cancel", "cancel")
        assert shell.ok("list").out.endswith("1 open, 3 closed (1 failed); --all shows them\n")
        assert shell.ok("list", "--all", "--json").json["total"] == 4
        assert shell.ok("list", "--status", "all", "--json").json["total"] == 4
        assert shell.ok("list", "--status", "closed", "--json").json["total"] == 3
        assert shell.ok("list", "-s", "failed", "-s", "cancelled", "--json").json["total"] == 2

    def test_a_list_shows_who_and_why_not(self, shell: Shell) -> None:
        shell.add("one", "--id", "one")
        shell.add("two", "--id", "two", "--needs", "one")
        shell.add("three", "--id", "three", "--for", "human")
        shell.add("four", "--id", "four")
        shell.ok("block", "four", "no key")
        shell.ok("claim", "one")
        rows = {line.split()[0]: line for line in shell.ok("list").out.splitlines()}
        assert "in progress" in rows["one"]
        assert "worker-1" in rows["one"]
        assert "waiting" in rows["two"]
        assert "(human)" in rows["three"]
        assert "blocked" in rows["four"]

    def test_a_task_whose_files_somebody_else_holds_is_not_shown_as_ready(self, shell: Shell) -> None:
        shell.add("one", "--id", "one", "--path", "src/a.py")
        shell.add("two", "--id", "two", "--path", "src/**")
        shell.add("three", "--id", "three", "--path", "docs/**")
        shell.ok("claim", "one")

        def states(*words: str) -> dict[str, str]:
            lines = shell.ok("list", *words).out.splitlines()
            return {line.split()[0]: line.split()[1] for line in lines if line.split()[0] in ("two", "three")}

        assert states() == {"two": "ready", "three": "ready"}  # the holder itself could take it
        assert states("--as", "bob") == {"two": "waiting", "three": "ready"}
        assert states("--as", "bob", "--status", "ready") == {"three": "ready"}
        assert states("--as", "bob", "--status", "waiting") == {"two": "waiting"}
        ready = {task["id"]: task["ready"] for task in shell.ok("list", "--as", "bob", "--json").json["tasks"]}
        assert ready == {"one": False, "two": False, "three": True}
        out = shell.ok("list", "--as", "bob").out
        assert out.endswith("3 open\n1 task waits for files that somebody else holds; who: dibs locks\n")
        assert shell.ok("show", "two", "--as", "bob").out.startswith("two  waiting\n")
        shell.ok("done", "one")
        assert states("--as", "bob") == {"two": "ready", "three": "ready"}
        assert "somebody else" not in shell.ok("list", "--as", "bob").out


class TestShow:
    def test_it_says_why_a_task_cannot_be_claimed(self, shell: Shell) -> None:
        shell.add("one", "--id", "one", "--path", "src/**")
        shell.add("two", "--id", "two", "--needs", "one", "--path", "src/a.py", "--for", "human")
        shell.ok("block", "two", "no", "key")
        shell.ok("claim", "one", "--as", "bob")
        out = shell.ok("show", "two").out
        assert "waits for one (in progress)" in out
        assert "reserved for a human" in out
        assert "src/** is held by bob for task one" in out
        assert "b1: no key (by worker-1; dibs unblock two)" in out
        reasons = shell.ok("show", "two", "--json").json["blocked_by"]
        assert [reason["code"] for reason in reasons] == ["dependency", "blocker", "reserved", "path"]
        assert reasons[3]["until"].endswith("Z")

    def test_it_shows_the_holder_and_what_happened(self, shell: Shell) -> None:
        task = shell.add("one", "--step", "a", "--max-attempts", "3")
        assert f"yes: dibs claim {task}" in shell.ok("show", task).out
        shell.ok("claim")
        mine = shell.ok("show", task).out
        assert "held by:     worker-1 (agent, you), " in mine
        assert "left of its lease" in mine
        assert "worker-1 claimed" in mine
        assert ", you" not in shell.ok("show", task, "--as", "bob").out
        assert shell.ok("show", task, "--json").json["blocked_by"][0]["worker"] == "worker-1"
        shell.ok("done", "did\nit")
        closed = shell.ok("show", task).out
        assert "result:      did\n             it\n" in closed
        assert "claimable" not in closed

    def test_the_history_says_when_it_is_cut(self, shell: Shell) -> None:
        task = shell.add("one")
        for _ in range(4):
            shell.ok("claim")
            shell.ok("release")
        assert f"dibs log --task {task} --all" in shell.ok("show", task).out


class TestDeciding:
    def test_each_decision_prints_the_task(self, shell: Shell) -> None:
        shell.add("one", "--id", "one", "--review")
        assert shell.ok("block", "one", "no", "key", "--json").json["blockers"][0]["reason"] == "no key"
        assert shell("claim", "one").code == 1
        unblocked = shell.ok("unblock", "one", "found it", "--blocker", "b1", "--json").json
        assert unblocked["blockers"][0]["resolution"] == "found it"
        assert unblocked["blockers"][0]["resolved_at"].endswith("Z")
        shell.ok("claim", "one")
        assert shell.ok("done", "one", "--json").json["status"] == "review"
        assert shell("accept", "one").code == 1
        rejected = shell.ok("reject", "one", "no", "tests", "--as", "bob", "--json").json
        assert rejected["status"] == "pending"
        assert rejected["result"] == "rejected by bob: no tests"
        assert "no tests" in shell.ok("claim", "one").out
        assert "somebody else decides" in shell.ok("done", "one").out
        assert shell.ok("accept", "one", "well", "done", "--as", "bob", "--json").json["status"] == "completed"
        assert shell("retry", "one", "--json").error["code"] == "wrong_status"

    def test_cancel_and_retry(self, shell: Shell) -> None:
        shell.add("one", "--id", "one")
        cancelled = shell.ok("cancel", "one", "not", "needed", "--json").json
        assert (cancelled["status"], cancelled["result"]) == ("cancelled", "not needed")
        assert "dibs retry one" in shell("claim", "one").err or shell("claim", "one").code == 1
        assert shell.ok("retry", "on", "--json").json["status"] == "pending"
        shell.ok("claim", "one", "--as", "bob")
        assert shell("cancel", "one").code == 1
        assert shell.ok("cancel", "one", "--human").code == 0

    def test_dependencies(self, shell: Shell) -> None:
        for name in ("one", "two", "three"):
            shell.add(name, "--id", name)
        assert "waits for no other task" in shell.ok("dep", "one").out
        linked = shell.ok("dep", "three", "--needs", "on", "--depends-on", "two", "--json").json
        assert linked["depends_on"] == ["one", "two"]
        assert shell("claim", "three").code == 1
        assert shell("dep", "one", "--needs", "three", "--json").error["code"] == "cycle"
        assert shell("dep", "one", "--needs", "nosuch", "--json").error["code"] == "not_found"
        out = shell.ok("dep", "three", "--drop", "tw").out
        assert "one  pending" in out
        assert "two" not in out
        assert shell("dep", "three", "--drop", "two").code == 1
        assert shell.ok("dep", "three", "--needs", "two", "--drop", "one", "--json").json["depends_on"] == ["two"]

    def test_a_wrong_drop_changes_nothing_else(self, shell: Shell) -> None:
        shell.add("one", "--id", "one")
        shell.add("two", "--id", "two")
        assert shell("dep", "two", "--needs", "one", "--drop", "nosuch").code == 1
        assert shell.ok("show", "two", "--json").json["depends_on"] == []

    def test_which_way_round_is_never_guessed(self, shell: Shell) -> None:
        refused = shell("dep", "one", "two")
        assert refused.code == 2
        assert "A waits for B: dibs dep A --needs B" in refused.err

    def test_steps(self, shell: Shell) -> None:
        shell.add("one", "--id", "one", "--step", "first")
        assert "[ ] s1 first" in shell.ok("step", "one").out
        shell.ok("step", "one", "add", "second", "thing")
        assert shell("step", "one", "done").code == 1  # not claimed
        shell.ok("claim", "one")
        assert "[>] s1 first" in shell.ok("step", "start").out
        assert "[x] s1 first (all green)" in shell.ok("step", "done", "s1", "all", "green").out
        assert shell("step", "one", "done", "s9").code == 1
        out = shell.ok("step", "o", "skip", "s2").out
        assert "[-] s2 second thing" in out
        assert "dibs done one" in out
        assert shell("step", "one", "finish").code == 2
        assert shell("step", "one", "add").code == 2
        steps = shell.ok("step", "--json").json["steps"]
        assert [(step["id"], step["status"]) for step in steps] == [("s1", "completed"), ("s2", "skipped")]
        assert steps[0]["completed_at"].endswith("Z")


LONG = "a-rather-long-identifier-that-nobody-would-type-" + "x" * 70
HOSTILE = "\x1b[31mred\x1b[0m \u202egnp.exe\u2066 " + "very long text " * 20 + "\nsecond line\r\n漢字" * 20


def test_every_view_fits_80_columns_and_steers_no_terminal(shell: Shell) -> None:
    with TaskBoard.open(f"sqlite:{shell.folder}/.dibs/board.db") as board:
        board.add(
            HOSTILE, id=LONG, labels=["l" * 100], steps=[HOSTILE], priority=2**31 - 1, paths=["p" * 200, "語" * 60]
        )
        board.add(HOSTILE, [LONG], id="n" * 128, reserved="human", paths=["q/**"])
        board.add(HOSTILE, id="reviewed", review=True)
        board.block("n" * 128, HOSTILE, worker="w" * 200)
        board.claim("w" * 200, LONG)
        board.claim("w" * 200, "reviewed")
        board.complete("reviewed", HOSTILE, worker="w" * 200)
        board.lock(["docs/" + "d" * 150, "語" * 50], "漢" * 60)
        board.tell(HOSTILE, "worker-1", worker="w" * 200)
        board.tell(HOSTILE, worker="漢" * 60)
    views = [
        ("list",), ("list", "--all"), ("ready",), ("ready", "--human"), ("show", LONG), ("show", "n" * 128),
        ("show", "reviewed"), ("dep", "n" * 128), ("step", LONG), ("locks",), ("log",), ("log", "--task", LONG),
        ("inbox",), ("reject", "reviewed", HOSTILE), ("claim", "reviewed"), ("renew",), ("done", HOSTILE),
        ("claim", "-n", "5"), ("unblock", "n" * 128, HOSTILE), ("add", HOSTILE, "--needs", LONG), ("lock", "z" * 150),
        ("unlock", "--all"), ("cancel", "n" * 128, HOSTILE), ("retry", "n" * 128), ("tell", "w" * 150, HOSTILE),
        ("release", "--all"),
    ]  # fmt: skip
    for view in views:
        result = shell(*view, COLUMNS="80")
        assert result.code in (0, 3), (view, result)
        for line in result.out.splitlines():
            assert line.isprintable(), (view, line)
            # A hint that repeats a very long id is not cut: half an id would be of no use.
            assert width(line) <= 80 or LONG in line or "n" * 128 in line, (view, width(line), line)


def test_a_long_id_leaves_the_columns_where_they_are(shell: Shell) -> None:
    shell.add("short", "--id", "a1", "--priority", "7")
    shell.add("long", "--id", "n" * 60, "--priority", "5")
    shell.add("longer than the screen", "--id", "m" * 128)
    shell.ok("claim", "n" * 60)
    shell.ok("lock", "src/a.py")
    lines = shell.ok("list", COLUMNS="80").out.splitlines()
    rows = [line for line in lines if line not in ("n" * 60, "m" * 128)]
    at = lines[0].index("TASK")
    assert [row[at:] for row in rows[1:4]] == ["long", "short", "longer than the screen"]
    assert [row[lines[0].index("STATUS") :].split()[0] for row in rows[1:4]] == ["in", "ready", "ready"]
    assert lines.index("n" * 60) == 1  # the id above its row, and whole
    shell.add("with files", "--id", "p" * 60, "--path", "b.py")
    shell.ok("claim", "p" * 60)
    held = shell.ok("locks", COLUMNS="80").out.splitlines()
    assert {line[held[0].index("FILES") :] for line in held[1:-1] if not line.endswith("p" * 60)} == {
        "src/a.py",
        "b.py",
    }


def test_a_very_long_description_does_not_fill_the_screen_on_claim(shell: Shell) -> None:
    shell.ok("add", "-", "--id", "big", stdin="word " * 12_000)
    said = shell.ok("claim", COLUMNS="80").out.splitlines()
    assert len(said) < 70
    left = next(line for line in said if "more lines" in line)
    assert left == "  … 740 more lines; whole: dibs show big"
    assert shell.ok("show", "big", COLUMNS="80").out.count("word") == 12_000
    assert shell.ok("show", "big", "--json").json["description"].count("word") == 12_000
    shell.ok("release")
    run = shell.ok("run", "--", "true")
    assert max(map(len, run.err.splitlines())) < 300


def test_the_json_of_one_task_has_its_history(shell: Shell) -> None:
    shell.add("x", "--id", "x1")
    shell.add("y", "--id", "y1")
    shell.ok("claim", "x1")
    shell.ok("release", "x1", "--note", "not mine")
    history = shell.ok("show", "x1", "--json").json["history"]
    assert [(entry["action"], entry["worker"]) for entry in history] == [
        ("added_activity", "worker-1"), ("claimed_activity", "worker-1"), ("released_activity", "worker-1"),
    ]  # fmt: skip
    assert history[2]["details"] == "not mine"
    assert {entry["activity_id"] for entry in history} == {"x1"}
