"""What dibs says next: hints that can be followed literally, and what became of things."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.shell import Result, Shell, width


def hints(result: Result) -> list[str]:
    """The lines of an error after its first; wrapped between words, at 80 columns."""
    return result.err.splitlines()[1:]


class TestDoneWithoutAClaim:
    def test_it_says_what_became_of_the_task(self, shell: Shell) -> None:
        task = shell.add("x")
        shell.ok("claim")
        shell.ok("cancel", task, "not needed", "--as", "bob", "--human")
        for words in (["done", "late"], ["done", "all of it"], ["done"], ["release"]):
            refused = shell(*words)
            assert refused.code == 1
            assert f"worker-1 holds no task: {task} was cancelled by bob" in refused.err
            assert "ago: not needed" in refused.err
            assert hints(refused) == ["  stop working on it, and take other work: dibs claim"]

    def test_it_says_that_the_lease_ran_out(self, shell: Shell) -> None:
        task = shell.add("x")
        shell.ok("claim", "--lease", "0.01")
        refused = shell("done", "late")
        assert f"worker-1 holds no task: the lease of {task} ran out" in refused.err
        assert f"dibs claim {task}" in refused.err

    def test_it_says_that_another_session_holds_it(self, shell: Shell) -> None:
        task = shell.add("x")
        shell.ok("claim", DIBS_SESSION="one")
        refused = shell("done", "late", DIBS_SESSION="two")
        assert f"another session of that name holds {task}" in refused.err
        assert "ran out" not in refused.err

    def test_who_never_had_one_is_told_only_that(self, shell: Shell) -> None:
        shell.add("x")
        refused = shell("done", "late", "--json")
        assert refused.error["message"] == "worker-1 holds no task (and no task is called late)"
        assert refused.error["task_id"] == "late"


class TestDone:
    def test_it_says_what_is_ready_now_and_what_comes_next(self, shell: Shell) -> None:
        shell.add("a", "--id", "a")
        for name in ("b", "c"):
            shell.add(name, "--id", name, "--needs", "a")
        shell.add("d", "--id", "d", "--needs", "b")
        shell.ok("claim", "a")
        assert shell.ok("done", "a", "did it").out.splitlines() == [
            "completed a: a",
            "  now ready: b, c",
            "  next: dibs claim",
        ]

    def test_it_warns_of_open_steps(self, shell: Shell) -> None:
        shell.add("a", "--id", "a", "--step", "code", "--step", "test")
        claimed = shell.ok("claim").out
        assert "after each step: dibs step a done" in claimed
        shell.ok("step", "done")
        assert "  1 step was still open: s2 test" in shell.ok("done", "a").out.splitlines()

    def test_a_repeat_with_another_text_changes_nothing_and_says_so(self, shell: Shell) -> None:
        shell.add("a", "--id", "a")
        shell.ok("claim")
        shell.ok("done", "a", "first")
        assert "now ready" not in shell.ok("done", "a", "first").out
        again = shell.ok("done", "a", "second")
        assert "a was already completed; the result was not changed" in again.out
        assert shell.ok("show", "a", "--json").json["result"] == "first"


def test_a_claim_says_that_it_goes_to_review_and_that_you_hold_more(shell: Shell) -> None:
    shell.add("a", "--id", "a", "--review", "-p", "1")
    shell.add("b", "--id", "b")
    first = shell.ok("claim").out
    assert "'what you did'; it goes to review" in first
    assert "also hold" not in first
    assert "you also hold 1 more: dibs list --mine" in shell.ok("claim").out


@pytest.mark.parametrize("name", ["nope.db", "a board.db"])
def test_without_a_board_the_hint_names_the_one_that_was_asked_for(shell: Shell, name: str) -> None:
    shown = f"'{name}'" if " " in name else name
    for refused in (shell("--board", name, "list"), shell("list", DIBS_BOARD=name), shell("--board", name, "recover")):
        assert refused.code == 1
        assert hints(refused) == [f"  make one with: dibs --board {shown} init"]


def test_the_way_to_give_a_lock_back_works_from_where_it_was_taken(shell: Shell) -> None:
    folder = shell.folder / "src" / "deep"
    folder.mkdir(parents=True)
    for paths in (["one.py"], ["../two.py"], ["with blank.py", "*.py"], ["it's.py"]):
        shown = shell.ok("lock", *paths, cwd=folder).out.splitlines()[-1]
        command = shown.partition("give back: dibs ")[2]
        given = subprocess.run(
            f"{sys.executable} -m dibs {command}",
            shell=True,
            cwd=folder,
            env=shell.environ,
            capture_output=True,
            text=True,
            check=True,
        )
        assert given.stdout.count("unlocked ") == len(paths)
        assert shell.ok("locks", "--json").json["locks"] == []


def test_who_has_waited_for_a_lock_is_not_told_to_wait(shell: Shell) -> None:
    shell.ok("lock", "a.py", "--as", "bob")
    assert "--wait" in shell("lock", "a.py").err
    waited = shell("lock", "a.py", "--wait", "0.1")
    assert waited.code == 1
    assert "--wait" not in waited.err
    assert "of waiting" in waited.err


@pytest.mark.parametrize("word", ["update", "edit"])
def test_editing_is_not_guessed_to_be_ending(shell: Shell, word: str) -> None:
    refused = shell(word, "x")
    assert refused.code == 2
    assert "tasks cannot be edited yet" in refused.err
    assert "did you mean" not in refused.err
    assert "dibs done" not in refused.err
    assert all(width(line) <= 80 for line in refused.err.splitlines())


def test_cancelling_says_who_waits_for_it_and_adding_says_for_what_in_vain(shell: Shell) -> None:
    shell.add("d", "--id", "d")
    shell.add("e", "--id", "e", "--needs", "d")
    assert "  still waiting for it: e (dibs dep e --drop d)" in shell.ok("cancel", "d").out.splitlines()
    added = shell.ok("add", "f", "--id", "f", "--needs", "d").out
    assert "  d is cancelled: dibs retry d, or dibs dep f --drop d" in added.splitlines()


class TestListByStatus:
    def test_the_words_of_its_own_column_are_understood(self, shell: Shell) -> None:
        for name in ("free", "stuck", "held", "over"):
            shell.add(name, "--id", name)
        shell.add("later", "--id", "later", "--needs", "free")
        shell.ok("block", "stuck", "why")
        for name in ("held", "over"):
            shell.ok("claim", name)
        shell.ok("done", "over")

        def ids(*words: str) -> list[str]:
            options = [part for word in words for part in ("--status", word)]
            return sorted(task["id"] for task in shell.ok("list", *options, "--json").json["tasks"])

        assert ids("ready") == ["free"]
        assert ids("waiting") == ids("blocked") == ids("waiting", "blocked") == ["later", "stuck"]
        assert ids("in progress") == ids("in-progress") == ["held"]
        assert ids("done") == ["over"]
        assert ids("ready", "done") == ["free", "over"]
        assert ids("ready", "waiting") == ids("ready", "pending") == ["free", "later", "stuck"]

    def test_pages_are_honest(self, shell: Shell) -> None:
        lines = [f'{{"id": "r{n}", "description": "x"}}\n{{"id": "w{n}", "description": "x", "needs": ["r{n}"]}}\n'
                 for n in range(600)]  # fmt: skip
        shell.ok("add", "--file", "-", stdin="".join(lines))
        page = shell.ok("list", "--status", "waiting", "--limit", "10", "--offset", "20", "--json").json
        assert ([task["id"] for task in page["tasks"]], page["more"]) == ([f"w{n}" for n in range(20, 30)], True)
        assert page["total"] is None
        last = shell.ok("list", "--status", "waiting", "--offset", "590", "--json").json
        assert (len(last["tasks"]), last["total"], last["more"]) == (10, 600, False)
        assert "there are more; next: --offset 10" in shell.ok("list", "--status", "ready", "-n", "10").out


class TestTaskFiles:
    def test_the_names_of_the_options_work_too(self, shell: Shell) -> None:
        shell.ok(
            "add",
            "--file",
            "-",
            stdin='{"id":"a","description":"a"}\n{"id":"b","description":"b","needs":["a"],"for":"human"}',
        )
        task = shell.ok("show", "b", "--json").json
        assert (task["depends_on"], task["reserved"]) == (["a"], "human")

    @pytest.mark.parametrize("key", ["path", "label", "step"])
    def test_one_of_a_list_is_pointed_out(self, shell: Shell, key: str) -> None:
        refused = shell("add", "--file", "-", stdin=f'{{"description": "a", "{key}": "x"}}')
        assert refused.code == 1
        assert f"line 1: a task has no '{key}'; did you mean {key}s, a list?" in refused.err


def test_unblocking_one_of_two_says_what_is_left(shell: Shell) -> None:
    shell.add("x", "--id", "x")
    shell.ok("block", "x", "first")
    shell.ok("block", "x", "second")
    assert "  still blocked by b2: second" in shell.ok("unblock", "x", "--blocker", "b1").out.splitlines()


def test_show_lists_every_blocker_beside_other_reasons(shell: Shell) -> None:
    shell.add("a", "--id", "a")
    shell.add("x", "--id", "x", "--needs", "a", "--for", "human")
    shell.ok("block", "x", "no key")
    shown = shell.ok("show", "x").out
    assert "waits for a" in shown
    assert "blocked by worker-1: no key" in shown
    assert "reserved:    for a human" in shown


def test_the_log_is_in_plain_words_and_raw_under_json(shell: Shell) -> None:
    shell.add("x", "--id", "x", "--step", "one")
    shell.ok("claim")
    shell.ok("step", "done")
    shell.ok("tell", "bob", "hello")
    shell.ok("release", "x")
    shown = shell.ok("log").out
    for words in ("added x", "claimed x", "finished step s1 of x", "told bob: hello", "released x"):
        assert words in shown
    assert "_" not in shown
    assert '"action":"claimed_activity"' in shell.ok("log", "--json").out


def test_ids_are_never_cut(shell: Shell) -> None:
    name = "an-id-of-more-than-twenty-four-characters"
    shell.add("words " * 30, "--id", name, "--path", "a.py")
    shell.add("short", "--id", "short")
    shell.ok("claim", name)
    for words in (["list"], ["locks"]):
        shown = shell.ok(*words).out
        assert name in shown
        assert all(width(line) <= 80 for line in shown.splitlines())


def test_what_is_missing_or_too_much_is_named(shell: Shell) -> None:
    assert "tell: the message is missing\n  dibs tell --all 'what to say'" in shell("tell", "--all").err
    assert "tell: the message is missing\n  dibs tell bob 'what to say'" in shell("tell", "bob").err
    assert "NAME and the message are missing" in shell("tell").err
    assert "one at a time" in shell("claim", "one", "two").err


def test_ready_on_an_empty_board_says_that_it_is_empty(shell: Shell) -> None:
    assert "the board is empty" in shell.ok("ready").out


def test_a_single_closed_task_is_not_all_of_them(shell: Shell) -> None:
    task = shell.add("x")
    shell.ok("cancel", task)
    assert "the only task is closed" in shell("claim").out


@pytest.mark.parametrize(("command", "code"), [(["nosuchcmd"], 127), (["false"], 1)])
def test_run_says_that_the_task_was_given_back(shell: Shell, command: list[str], code: int) -> None:
    task = shell.add("x")
    ran = shell("run", "--", *command)
    assert ran.code == code
    assert f"{task} was given back" in ran.err


def test_the_demo_tells_in_the_order_in_which_things_happened(shell: Shell) -> None:
    told = shell.ok("demo", "--plain", "--workers", "3", "--tasks", "8", TMPDIR=str(shell.folder))
    seconds = [
        float(line[:5]) for line in (told.out + told.err).partition("\n\n")[0].splitlines() if " s  " in line[:10]
    ]
    assert len(seconds) > 8
    assert seconds == sorted(seconds)
    assert "temporary demo board; its folder can go" in told.out


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_completion_knows_the_words_of_the_status_column(shell: Shell, name: str) -> None:
    assert "ready waiting blocked" in shell.ok("completion", name).out
