"""Taking work and ending it from the command line: exit codes, JSON, and which task is meant."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from dibs import TaskBoard
from tests.cli.shell import PATIENCE, Shell

DOCUMENT_004 = [
    "id", "description", "status", "assigned_to", "depends_on", "result", "priority",
    "created_at", "claimed_at", "completed_at",
]  # fmt: skip
OURS = [
    "token", "lease_expires_at", "paths", "labels", "steps", "blockers", "parent", "reserved", "review",
    "attempts", "max_attempts", "created_by",
]  # fmt: skip


def test_the_exit_codes(shell: Shell) -> None:
    assert shell("claim").code == 3
    task = shell.add("first")
    assert shell("claim").code == 0
    assert shell("claim", task, "--as", "other").code == 1
    assert shell("claim").code == 3
    assert shell("claim", "--nonsense").code == 2
    assert shell("wait", "--timeout", "0").code == 3
    assert shell("done", task, "--as", "other").code == 1
    assert shell("done", task).code == 0
    assert shell("show", "nosuch").code == 1
    assert shell("list").code == 0
    assert shell("ready").code == 0
    assert shell("inbox").code == 0
    assert shell("inbox", "--wait", "0.05").code == 3
    assert shell("list", "--board", "sqlite:/nowhere/at/all.db").code == 1


def test_a_claim_prints_the_task(shell: Shell) -> None:
    task_id = shell.add("Write it", "-p", "5", "--path", "src/**", "--label", "db", "--step", "one", "--step", "two")
    task = shell.ok("claim", "--json").json
    assert list(task) == DOCUMENT_004 + OURS
    assert task["id"] == task_id
    assert task["status"] == "in_progress"
    assert task["assigned_to"] == "worker-1"
    assert task["priority"] == 5
    assert task["paths"] == ["src/**"]
    assert [step["title"] for step in task["steps"]] == ["one", "two"]
    assert isinstance(task["token"], int)
    assert task["created_at"].endswith("Z")
    assert task["claimed_at"] < task["lease_expires_at"]
    done = shell.ok("done", "--json", "all written").json
    assert (done["status"], done["result"]) == ("completed", "all written")
    assert (done["token"], done["lease_expires_at"]) == (None, None)


def test_a_claim_tells_people_the_whole_task_and_what_to_do_next(shell: Shell) -> None:
    task = shell.add("Line one\nline two " + "word " * 40 + "END")
    out = shell.ok("claim").out
    assert "  Line one\n  line two" in out
    assert "END" in out
    assert f"dibs done {task}" in out
    assert f"dibs release {task}" in out


def test_nothing_to_claim_says_why_and_what_then(shell: Shell) -> None:
    assert "board is empty" in shell("claim").out
    task = shell.add("one")
    shell.add("two", "--needs", task)
    shell.ok("claim")
    answer = shell("claim", "--json", "--as", "other")
    assert answer.code == 3
    assert answer.json["claimed"] is False
    assert "1 pending" in answer.json["message"]
    assert "1 in progress" in answer.json["message"]
    assert "dibs wait" in answer.json["hint"]
    mine = shell("claim")
    assert f"worker-1 holds {task}" in mine.out
    shell.ok("done", task)
    shell.ok("claim")
    shell.ok("done")
    assert "all 2 tasks are closed" in shell("claim").out


def test_several_are_claimed_at_once(shell: Shell) -> None:
    ids = [shell.add(f"task {n}") for n in range(4)]
    taken = shell.ok("claim", "-n", "3", "--json").json
    assert [task["id"] for task in taken["tasks"]] == ids[:3]
    assert [task["id"] for task in shell.ok("claim", "-n", "3", "--json").json["tasks"]] == ids[3:]
    assert shell("claim", "-n", "3", "--json").json["claimed"] is False
    assert shell("claim", "-n", "0").code == 1
    assert shell("claim", ids[0], "-n", "1").code == 2


def test_a_named_task_that_cannot_be_claimed_says_by_what(shell: Shell) -> None:
    first = shell.add("one")
    second = shell.add("two", "--needs", first)
    refused = shell("claim", second, "--json")
    assert refused.code == 1
    assert refused.error["code"] == "not_claimable"
    assert refused.error["reasons"][0]["task_id"] == first
    human = shell("claim", second)
    assert human.err.startswith(f"dibs: cannot claim task {second}: waits for {first} (pending)")
    assert human.out == ""


def test_a_request_key_gives_the_same_answer_again(shell: Shell) -> None:
    one = shell.ok("add", "x", "--key", "k1", "--json").json
    assert shell.ok("add", "x", "--key", "k1", "--json").json["id"] == one["id"]
    shell.add("y")
    claimed = shell.ok("claim", "--key", "c1", "--json").json
    again = shell.ok("claim", "--key", "c1", "--json").json
    assert (again["id"], again["token"]) == (claimed["id"], claimed["token"])


def test_ids_may_be_shortened_where_they_are_unique(shell: Shell) -> None:
    shell.add("x", "--id", "alpha-1")
    shell.add("y", "--id", "alpha-2")
    shell.add("z", "--id", "beta")
    assert shell.ok("show", "be", "--json").json["id"] == "beta"
    assert shell.ok("claim", "b", "--json").json["id"] == "beta"
    assert shell.ok("renew", "b", "--json").json["id"] == "beta"
    assert shell.ok("done", "bet", "--json").json["id"] == "beta"
    ambiguous = shell("show", "alp", "--json")
    assert ambiguous.code == 1
    assert ambiguous.error["code"] == "ambiguous_id"
    assert ambiguous.error["candidates"] == ["alpha-1", "alpha-2"]
    assert shell("claim", "gamma", "--json").error["code"] == "not_found"


def test_an_exact_id_wins_over_longer_ones(shell: Shell) -> None:
    shell.add("x", "--id", "a")
    shell.add("y", "--id", "ab")
    assert shell.ok("claim", "a", "--json").json["id"] == "a"
    assert shell.ok("done", "a", "finished", "--json").json["id"] == "a"


class TestWhichTaskIsMeant:
    @pytest.mark.parametrize("words", [["renew"], ["step"], ["done"], ["fail", "it broke"], ["release"]])
    def test_the_only_one_held_needs_no_name(self, shell: Shell, words: list[str]) -> None:
        task = shell.add("x")
        shell.add("not this one")
        shell.ok("claim", task)
        answer = shell.ok(*words, "--json").json
        assert (answer["tasks"][0] if words == ["renew"] else answer)["id"] == task

    def test_with_none_held_it_says_so(self, shell: Shell) -> None:
        shell.add("x")
        for verb in ("done", "release", "renew", "step"):
            refused = shell(verb, "--json")
            assert refused.code == 1
            assert "worker-1 holds no task" in refused.error["message"]
        assert "holds no task" in shell("done", "all is well now").err

    def test_with_several_held_it_lists_them(self, shell: Shell) -> None:
        ids = [shell.add(f"t{n}", "--id", f"task-{n}") for n in range(2)]
        shell.ok("claim", "-n", "2")
        for words in (("done",), ("release",), ("fail", "--error", "x"), ("step",)):
            refused = shell(*words, "--json")
            assert refused.code == 1
            assert refused.error["candidates"] == ids
        assert "task-0, task-1" in shell("done", "finished everything").err
        assert shell.status("task-0") == "in_progress"

    @pytest.mark.parametrize(
        ("words", "result"),
        [
            (["held1"], None),
            (["held1", "wrote", "it"], "wrote it"),
            (["hel", "wrote", "it"], "wrote it"),
            (["h"], None),
            (["wrote it all"], "wrote it all"),
            (["wrote it,", "all", "of it"], "wrote it, all of it"),
            (["--result", "wrote it"], "wrote it"),
            (["--result", "wrote"], "wrote"),
            (["held1", "--result", "wrote it"], "wrote it"),
            (["hel", "--result", "wrote it"], "wrote it"),
            (["held1", "-"], "from\nstdin"),
            (["-"], "from\nstdin"),
            (["-r", "-"], "from\nstdin"),
            (["--", "--strange"], "--strange"),
        ],
    )
    def test_the_words_of_done(self, shell: Shell, words: list[str], result: str | None) -> None:
        shell.add("x", "--id", "held1")
        shell.add("y", "--id", "other2")
        shell.ok("claim", "held1")
        done = shell.ok("done", "--json", *words, stdin="from\nstdin\n")
        assert (done.json["id"], done.json["status"], done.json["result"]) == ("held1", "completed", result)
        assert shell.status("other2") == "pending"

    @pytest.mark.parametrize("words", [["other2", "finished"], ["oth", "finished"], ["other3", "finished"], ["other2"]])
    def test_a_text_never_ends_the_wrong_task(self, shell: Shell, words: list[str]) -> None:
        """Somebody else's id, abbreviated, mistyped: refused, and the task that is held stays held."""
        shell.add("x", "--id", "held1")
        shell.add("y", "--id", "other2")
        shell.ok("claim", "held1")
        refused = shell("done", *words)
        assert refused.code == 1, refused
        assert shell.status("held1") == "in_progress"
        assert shell.status("other2") == "pending"

    @pytest.mark.parametrize(
        ("verb", "option", "said"), [("done", "--result", "what you did"), ("fail", "--error", "what went wrong")]
    )
    def test_a_first_word_that_could_be_an_id_and_is_none_is_refused(
        self, shell: Shell, verb: str, option: str, said: str
    ) -> None:
        shell.add("x", "--id", "held1")
        shell.ok("claim", "held1")
        too_short = ["h", "wrote"]  # for an abbreviation when more words follow
        for words in (["ab", "done with ab"], ["wrote", "it", "all"], ["finished"], too_short):
            refused = shell(verb, *words, "--json")
            assert refused.code == 1, refused
            assert refused.error == {
                "code": "not_found",
                "message": f"Task not found: {words[0]}",
                "hint": f"worker-1 holds held1: dibs {verb} held1 '{said}'; "
                f"if {words[0]} begins a text: dibs {verb} {option} '{said}'",
                "task_id": words[0],
            }
        assert shell.status("held1") == "in_progress"

    def test_fail_needs_a_reason(self, shell: Shell) -> None:
        task = shell.add("x")
        shell.ok("claim")
        assert shell("fail").code == 2
        assert shell("fail", task).code == 2
        assert shell.status(task) == "in_progress"
        failed = shell.ok("fail", task, "no", "such", "API", "--json").json
        assert (failed["status"], failed["result"]) == ("failed", "no such API")


def test_done_with_next_ends_one_and_takes_another(shell: Shell) -> None:
    one, two = shell.add("one"), shell.add("two")
    shell.ok("claim")
    both = shell.ok("done", "--next", "first done", "--json").json
    assert both["completed"]["id"] == one
    assert both["completed"]["result"] == "first done"
    assert both["next"]["id"] == two
    assert both["next"]["status"] == "in_progress"
    last = shell.ok("done", two, "--next", "--json").json
    assert last["next"] is None
    shell.add("three")
    shell.ok("claim")
    assert "all 3 tasks are closed" in shell.ok("done", "--next").out


def test_done_with_next_checks_the_claim_like_done(shell: Shell) -> None:
    task = shell.add("one")
    shell.add("two")
    shell.ok("claim", task)
    refused = shell("done", task, "--next", "--as", "other")
    assert refused.code == 1
    assert "held by worker-1" in refused.err
    assert shell("done", task, "--next", "--token", "1").code == 1
    assert shell.status(task) == "in_progress"


def test_a_token_of_an_older_claim_is_refused(shell: Shell) -> None:
    task = shell.add("x")
    first = shell.ok("claim", "--json").json["token"]
    shell.ok("release", "--note", "not today")
    second = shell.ok("claim", "--json").json["token"]
    assert second > first
    for verb in (["done", task, "result"], ["fail", task, "why"], ["renew", task], ["release", task]):
        late = shell(*verb, "--token", str(first), "--json")
        assert late.code == 1
        assert late.error["code"] == "lease_lost"
        assert late.error["holder"] == "worker-1"
    assert shell.ok("done", task, "--token", str(second), "--json").json["status"] == "completed"


def test_a_lease_can_be_chosen_and_renewed(shell: Shell) -> None:
    shell.add("x")
    assert "yours for 2h 00m" in shell.ok("claim", "--lease", "2h").out
    assert "for 30m" in shell.ok("renew", "--lease", "30m").out
    assert shell("claim", "--lease", "0").code in (1, 3)


def test_release_gives_back_one_or_everything(shell: Shell) -> None:
    ids = [shell.add(f"t{n}", "--path", f"src/{n}") for n in range(3)]
    shell.ok("claim", "-n", "3")
    shell.ok("lock", "README.md")
    assert shell.ok("release", ids[0], "--note", "too hard", "--json").json["status"] == "pending"
    assert "too hard" in shell.ok("log", "--task", ids[0]).out
    assert sorted(shell.ok("release", "--all", "--json").json["released"]) == sorted(ids[1:])
    assert shell.ok("locks", "--json").json["locks"] == []
    assert shell("release", "--all", ids[0]).code == 2


def test_waiting_ends_when_there_is_work(shell: Shell) -> None:
    waiting = subprocess.Popen(
        [sys.executable, "-m", "dibs", "wait", "--timeout", "50"],
        cwd=shell.folder,
        env=shell.environ,
        stdout=subprocess.PIPE,
    )
    claiming = subprocess.Popen(
        [sys.executable, "-m", "dibs", "claim", "late", "--wait", "50", "--as", "w2", "--json"],
        cwd=shell.folder,
        env=shell.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = claiming.communicate(timeout=PATIENCE)
    assert claiming.returncode == 1, err  # waiting for a task that does not exist would be for ever
    started = time.monotonic()
    shell.ok("add", "x", "--id", "late")
    out, _ = waiting.communicate(timeout=PATIENCE)
    assert waiting.returncode == 0
    assert b"dibs claim" in out
    assert time.monotonic() - started < PATIENCE / 2


def test_a_named_task_can_be_waited_for(shell: Shell) -> None:
    shell.add("x", "--id", "wanted")
    shell.ok("claim", "wanted")
    claiming = subprocess.Popen(
        [sys.executable, "-m", "dibs", "claim", "wanted", "--wait", "50", "--as", "w2", "--json"],
        cwd=shell.folder,
        env=shell.environ,
        stdout=subprocess.PIPE,
    )
    shell.ok("release")
    out, _ = claiming.communicate(timeout=PATIENCE)
    assert claiming.returncode == 0
    assert b'"assigned_to":"w2"' in out
    shell.ok("done", "wanted", "--as", "w2")
    assert shell("claim", "wanted", "--wait", "50").code == 1  # completed: no waiting will help


def test_a_cli_worker_is_not_its_short_lived_process(shell: Shell) -> None:
    """A claim outlives the command that made it: the end of that process is not the end of the worker."""
    task = shell.add("x")
    shell.ok("claim")
    with TaskBoard.open(f"sqlite:{shell.folder}/.dibs/board.db") as board:
        holder = board.get(task).holder
        assert holder is not None
        assert holder.pid is None
        assert board.recover() == []
    assert shell.status(task) == "in_progress"


def test_release_takes_its_note_as_done_does(shell: Shell) -> None:
    shell.add("x", "--id", "alpha")
    for words in (
        ("release", "needs SQL"),
        ("release", "alpha", "needs", "SQL"),
        ("release", "alp", "--note", "needs SQL"),
    ):
        shell.ok("claim")
        shell.ok(*words)
        assert shell.status("alpha") == "pending"
        assert shell.ok("show", "alpha", "--json").json["history"][-1]["details"] == "needs SQL"
    shell.ok("claim")
    refused = shell("release", "alpah", "needs SQL", "--json")
    assert refused.error["code"] == "not_found"
    assert shell.status("alpha") == "in_progress"
    shell.ok("release", "--all", "going home early")
    assert shell.status("alpha") == "pending"


def test_done_without_a_text_says_what_others_will_miss(shell: Shell) -> None:
    shell.add("x", "--id", "one")
    shell.add("y", "--id", "two")
    shell.ok("claim", "one")
    assert "no text was given: whoever goes on from here will not know what was done" in shell.ok("done").out
    shell.ok("claim", "two")
    assert "no text" not in shell.ok("done", "two", "it is done").out


def test_several_ids_after_an_option_for_one_are_explained(shell: Shell) -> None:
    for name in ("a1", "b1", "c1"):
        shell.add(name, "--id", name)
    way = "--needs a1 --needs b1"
    for words in (
        ("add", "x", "--needs", "a1,b1"), ("add", "x", "--needs", "a1, b1"), ("add", "x", "--needs", "a1", "b1"),
        ("add", "--needs", "a1", "b1"), ("dep", "c1", "--needs", "a1,b1"), ("dep", "c1", "--needs", "a1", "b1"),
    ):  # fmt: skip
        refused = shell(*words)
        assert (refused.code, refused.out) == (2, ""), words
        assert way in refused.err, refused
    assert len(shell.ok("list", "--json").json["tasks"]) == 3
    added = shell.ok("add", "--needs", "a1", "Write", "the", "docs", "--json").json
    assert (added["description"], added["depends_on"]) == ("Write the docs", ["a1"])
