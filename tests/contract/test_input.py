"""Hostile input is refused with a clear error before anything is changed, and refusals say the way out."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from dibs import TaskBoard, Worker
from dibs.errors import DibsError, Invalid
from tests.clocks import HandClock
from tests.contract.people import ANN, BEN, EVE, agent, ascii_start, take
from tests.contract.stores import Home

LIMIT = 64 * 1024
BAD_TEXT: dict[str, object] = {
    "empty": "",
    "blank": " \n\t ",
    "NUL": "a\0b",
    "surrogate": "a\ud800b",
    "too long": "x" * (LIMIT + 1),
    "too long in bytes": "é" * (LIMIT // 2 + 1),
    "bytes": b"text",
    "number": 5,
    "nothing": None,
}
BAD_IDS: list[object] = ["", "x" * 129, "a b", "a/b", "../x", "..", ".", ".hidden", "-rf", "a\0", "a\n", "é", "\ud800"]
BAD_IDS += ["a:b", "*", "a'b", 5, b"a", ["a"]]
BAD_NAMES: list[object] = ["", " ann", "ann ", "a\nb", "a\tb", "a\0b", "\x1b[31m", "\ud800", "x" * 201]
BAD_NAMES += ["\u202eevil", "\u2028", 5]

TEXT_VERBS: dict[str, Callable[[TaskBoard, Any], object]] = {
    "add": lambda board, text: board.add(text),
    "fail": lambda board, text: board.fail("held", text),
    "block": lambda board, text: board.block("free", text, worker=EVE),
    "reject": lambda board, text: board.reject("review", text, worker=EVE),
    "step add": lambda board, text: board.step("free", "add", text, worker=EVE),
    "steps": lambda board, text: board.add("x", steps=[text]),
    "tell": lambda board, text: board.tell(text, worker=ANN),
}
OPTIONAL_TEXT_VERBS: dict[str, Callable[[TaskBoard, Any], object]] = {
    "complete": lambda board, text: board.complete("held", text),
    "release": lambda board, text: board.release("held", note=text),
    "cancel": lambda board, text: board.cancel("free", text, worker=EVE),
    "accept": lambda board, text: board.accept("review", text, worker=EVE),
    "unblock": lambda board, text: board.unblock("blocked", text, worker=EVE),
    "step done": lambda board, text: board.step("held", "done", text, worker=ANN),
    "release_agent_tasks": lambda board, text: board.release_agent_tasks("ann", note=text),
}
ID_VERBS: dict[str, Callable[[TaskBoard, Any], object]] = {
    "add": lambda board, i: board.add("x", id=i),
    "depends_on": lambda board, i: board.add("x", [i]),
    "parent": lambda board, i: board.add("x", parent=i),
    "claim": lambda board, i: board.claim(ANN, i),
    "complete": lambda board, i: board.complete(i),
    "fail": lambda board, i: board.fail(i, "boom"),
    "release": lambda board, i: board.release(i),
    "renew": lambda board, i: board.renew(i),
    "cancel": lambda board, i: board.cancel(i, worker=EVE),
    "depend": lambda board, i: board.depend(i, ["free"], worker=EVE),
    "needs": lambda board, i: board.depend("free", [i], worker=EVE),
    "undepend": lambda board, i: board.undepend("free", [i], worker=EVE),
    "step": lambda board, i: board.step(i, "start", worker=ANN),
    "get": lambda board, i: board.get(i),
    "resolve": lambda board, i: board.resolve(i),
    "reasons": lambda board, i: board.reasons(i),
}
NAME_VERBS: dict[str, Callable[[TaskBoard, Any], object]] = {
    "claim": lambda board, name: board.claim(name),
    "lock": lambda board, name: board.lock(["a"], name),
    "unlock": lambda board, name: board.unlock(None, name),
    "inbox": lambda board, name: board.inbox(name),
    "release_agent_tasks": lambda board, name: board.release_agent_tasks(name),
    "recipient": lambda board, name: board.tell("hello", name, worker=ANN),
    "label": lambda board, name: board.add("x", labels=[name]),
    "request key": lambda board, name: board.add("x", request_key=name),
    "claim's request key": lambda board, name: board.claim(BEN, request_key=name),
    "held_by": lambda board, name: board.held_by(name),
}


@pytest.fixture
def busy(board: TaskBoard, home: Home) -> TaskBoard:
    """A board with a task in each state that the verbs below need, as far as the store has such states."""
    steps: dict[str, Any] = {} if "steps" in home.cannot else {"steps": ["one"]}
    review: dict[str, Any] = {} if "reviews" in home.cannot else {"review": True}
    board.add("a", id="held", **steps)
    board.add("b", id="review", **review)
    if "blockers" not in home.cannot:
        board.add("c", id="blocked")
        board.block("blocked", "why", worker=EVE)
    board.claim(ANN, n=2)
    board.complete("review", worker=ANN)
    board.add("d", id="free")
    return board


def refused(board: TaskBoard, attempt: Callable[[], object], kind: type[DibsError] = Invalid) -> None:
    """It raises our error, and nothing has changed."""
    before = (board.status(), len(list(board.changelog())), board.locks(), board.messages())
    with pytest.raises(kind) as caught:
        attempt()
    str(caught.value).encode()
    assert (board.status(), len(list(board.changelog())), board.locks(), board.messages()) == before


@pytest.mark.slow_on("bilu", "workitems")
@pytest.mark.parametrize("what", BAD_TEXT)
@pytest.mark.parametrize("verb", TEXT_VERBS)
def test_text_that_cannot_be_kept_is_refused(busy: TaskBoard, verb: str, what: str) -> None:
    if verb == "step add" and what == "nothing":
        what = "empty"
    refused(busy, lambda: TEXT_VERBS[verb](busy, BAD_TEXT[what]))


@pytest.mark.slow_on("bilu", "workitems")
@pytest.mark.parametrize("what", [what for what in BAD_TEXT if what not in ("empty", "blank", "nothing")])
@pytest.mark.parametrize("verb", OPTIONAL_TEXT_VERBS)
def test_so_are_notes_and_results(busy: TaskBoard, verb: str, what: str) -> None:
    refused(busy, lambda: OPTIONAL_TEXT_VERBS[verb](busy, BAD_TEXT[what]))


@pytest.mark.slow_on("bilu", "workitems")
@pytest.mark.parametrize("verb", ID_VERBS)
def test_what_is_no_id_is_refused(busy: TaskBoard, verb: str) -> None:
    for bad in BAD_IDS:
        refused(busy, lambda bad=bad: ID_VERBS[verb](busy, bad), DibsError)  # type: ignore[misc]


@pytest.mark.slow_on("bilu", "workitems")
@pytest.mark.parametrize("verb", NAME_VERBS)
def test_what_is_no_name_is_refused(busy: TaskBoard, verb: str) -> None:
    for bad in BAD_NAMES:
        refused(busy, lambda bad=bad: NAME_VERBS[verb](busy, bad))  # type: ignore[misc]


BAD_WORKERS = {
    "two lines": Worker("two\nlines"),
    "NUL": Worker("a\0b"),
    "surrogate": Worker("\ud800"),
    "empty": Worker(""),
    "kind": Worker("ann", "wizard"),
    "NUL in the session": Worker("ann", session="a\0b"),
    "surrogate in the session": Worker("ann", session="\ud800"),
    "number": Worker(5),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("what", BAD_WORKERS)
def test_a_worker_that_was_made_by_hand_is_checked_too(busy: TaskBoard, what: str) -> None:
    worker = BAD_WORKERS[what]
    refused(busy, lambda: busy.claim(worker))
    refused(busy, lambda: busy.lock(["a"], worker))
    refused(busy, lambda: busy.tell("hello", worker=worker))


def test_a_worker_whose_record_was_read_is_still_checked(busy: TaskBoard) -> None:
    worker = Worker("two\nlines")
    assert "two" in worker.text
    refused(busy, lambda: busy.claim(worker))


@pytest.mark.parametrize(
    "text",
    ["x" * LIMIT, "é" * (LIMIT // 2), "\x1b[2J\x07<script>", "'; DROP TABLE task; --", "{{7*7}}", "\u202eevil", "🎉"],
    ids=ascii_start,
)
def test_any_other_text_is_kept_exactly(board: TaskBoard, other: TaskBoard, home: Home, text: str) -> None:
    if home.plain_text and any(character < " " for character in text):
        refused(board, lambda: board.add(text))
        return
    task_id = board.add(text)
    assert other.get(task_id).description == text
    take(board).complete(text)
    assert other.get(task_id).result == text
    assert text in [event.details for event in other.changelog()]


@pytest.mark.parametrize("task_id", ["a", "_", "0", "A.b-c_D", "x" * 128, "null", "true", "CON", "a..b"])
def test_any_id_within_the_limits_is_kept_exactly(board: TaskBoard, home: Home, task_id: str) -> None:
    if task_id in home.other_ids:
        refused(board, lambda: board.add("x", id=task_id))
        return
    assert board.add("x", id=task_id) == task_id
    assert take(board, ANN, task_id).id == task_id


NAMES = ["ann", "ünï", "a/b", "日本", "x" * 200, "DOMAIN:ann", "ann@home+1", "_a.b-c"]
OLD_NAMES = ["Ann Lee", "../../etc/passwd", "'; --", "%s", "*", "x; touch /tmp/pwn #", "$(id)", "-rf", "~ann", "#1"]


@pytest.mark.parametrize("name", OLD_NAMES)
def test_a_new_name_is_one_that_a_shell_reads_as_it_stands(board: TaskBoard, name: str) -> None:
    board.add("x", id="x1")
    for call in (
        lambda: board.claim(name),
        lambda: board.claim(Worker(name, "human", session="s"), "x1"),
        lambda: board.add("y", worker=name),
        lambda: board.tell("hello", worker=name),
        lambda: board.lock(["a.py"], name),
    ):
        with pytest.raises(Invalid, match=r"cannot be a new worker name.*letters, digits and \. _ - @ \+ : /"):
            call()
    assert board.tasks(assigned_to=name)[1] == 0
    assert board.locks() == []


@pytest.mark.needs("labels")
@pytest.mark.parametrize("name", NAMES + OLD_NAMES)
def test_any_name_that_is_on_the_board_is_kept_exactly(board: TaskBoard, name: str) -> None:
    if name in OLD_NAMES:
        with board.store.write() as tx:
            tx.set_mark(name, 1)  # a reader from before names were limited
    board.add("x", labels=[name])
    task = take(board, name)
    assert (task.assigned_to, task.labels) == (name, [name])
    assert [t.id for t in board.held_by(name)] == [task.id]
    assert board.release_agent_tasks(name) == [task.id]


@pytest.mark.parametrize(
    "fields",
    [
        {"priority": 2**31},
        {"priority": -(2**31)},
        {"priority": 1.5},
        {"priority": "high"},
        {"priority": True},
        {"max_attempts": -1},
        {"max_attempts": 1.5},
        {"max_attempts": "3"},
        {"reserved": "robot"},
        {"reserved": 5},
        {"review": "yes"},
        {"review": 1},
        {"labels": "one"},
        {"labels": [["one"]]},
        {"labels": [{}]},
        {"paths": "src"},
        {"paths": [1]},
        {"paths": [["src"]]},
        {"paths": ["/outside/the/repository"]},
        {"steps": "one"},
        {"steps": [["one"]]},
        {"labels": ["x"] * 5 + [f"l{i}" for i in range(10_001)]},
    ],
    ids=lambda fields: repr(fields)[:40],
)
def test_fields_of_the_wrong_sort_are_refused(board: TaskBoard, fields: dict[str, Any]) -> None:
    refused(board, lambda: board.add("x", **fields))


@pytest.mark.parametrize(
    "priority",
    [
        pytest.param(2**31 - 1, marks=pytest.mark.needs("priorities")),
        pytest.param(-(2**31) + 1, marks=pytest.mark.needs("priorities")),
        0,
    ],
)
def test_the_greatest_priorities_work(board: TaskBoard, home: Home, priority: int) -> None:
    board.add("middle", id="m")
    board.add("x", priority=priority, id="x")
    assert board.get("x").priority == (priority or home.priority)
    assert take(board).id == ("x" if priority > 0 else "m")


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), "5", True])
def test_a_stale_timeout_must_be_a_length_of_time(timeout: Any) -> None:
    with pytest.raises(Invalid):
        TaskBoard(stale_timeout=timeout)


PROVOKED: dict[str, tuple[str, Callable[[TaskBoard], object]]] = {
    "empty": ("invalid", lambda board: board.add("")),
    "bad id": ("invalid", lambda board: board.claim(ANN, "../x")),
    "unknown task": ("not_found", lambda board: board.complete("nowhere")),
    "unknown dependency": ("not_found", lambda board: board.add("x", ["nowhere"])),
    "unknown edge": ("not_found", lambda board: board.undepend("free", ["held"], worker=EVE)),
    "unknown lock": ("not_found", lambda board: board.unlock(["etc"], ANN)),
    "prefix": ("ambiguous_id", lambda board: board.resolve("f")),
    "taken id": ("duplicate", lambda board: board.add("x", id="held")),
    "circle": ("cycle", lambda board: board.depend("free", ["free"], worker=EVE)),
    "circle in a call": ("cycle", lambda board: board.add_many([{"description": "x", "id": "q", "depends_on": ["q"]}])),
    "release": ("wrong_status", lambda board: board.release("free")),
    "retry": ("wrong_status", lambda board: board.retry("free", worker=EVE)),
    "accept": ("wrong_status", lambda board: board.accept("free", worker=EVE)),
    "unblock": ("wrong_status", lambda board: board.unblock("free", worker=EVE)),
    "steps": ("wrong_status", lambda board: board.step("held", "done", step_id="s9", worker=ANN)),
    "held task": ("not_claimable", lambda board: board.claim(BEN, "held")),
    "held path": ("not_claimable", lambda board: board.claim(BEN, "path")),
    "dependency": ("not_claimable", lambda board: board.claim(BEN, "waits")),
    "somebody else's": ("not_holder", lambda board: board.complete("held", worker=BEN)),
    "another session's": ("not_holder", lambda board: board.complete("held", worker=agent("ann", "s2"))),
    "cancel": ("not_holder", lambda board: board.cancel("held", worker=BEN)),
    "own review": ("not_holder", lambda board: board.accept("review", worker=ANN)),
    "old token": ("lease_lost", lambda board: board.complete("held", token=1)),
    "expired": ("lease_lost", lambda board: board.complete("short", worker=EVE)),
    "lock": ("busy", lambda board: board.lock(["src/a"], BEN)),
    "task's lock": ("invalid", lambda board: board.unlock(["lib"], ANN)),
}
FORBIDDEN = re.compile(
    r"\b(rm|del|delet\w*|remov\w*|eras\w*|wip\w*|purge\w*|steal\w*|stole\w*|forc\w*|overwrit\w*|kill\w*|drop table)\b",
    re.I,
)


@pytest.mark.needs("locks", "paths")
@pytest.mark.parametrize("what", PROVOKED)
def test_an_error_has_a_stable_code_says_what_and_never_advises_harm(
    busy: TaskBoard, clock: HandClock, what: str
) -> None:
    busy.add("x", ["held"], id="waits")
    busy.add("x", paths=["src"], id="path")
    busy.add("x", paths=["lib"], id="lib")
    busy.add("x", id="short")
    busy.add("x", id="fellow")
    take(busy, ANN, "lib")
    take(busy, EVE, "short", lease=10)
    busy.lock(["src"], ANN)
    clock.advance(10)
    code, provoke = PROVOKED[what]
    with pytest.raises(DibsError) as caught:
        provoke(busy)
    error = caught.value
    assert error.code == code
    assert error.message
    assert not FORBIDDEN.search(str(error)), str(error)
    shown = error.as_dict()
    assert (shown["code"], shown["message"], shown["hint"]) == (code, error.message, error.hint)


@pytest.mark.parametrize(
    "hostile", ["", "../outside", "a/../../b", "a\0b", "a\nb", "\ud800", "x" * 5000], ids=ascii_start
)
def test_a_path_that_leaves_the_repository_or_cannot_be_stored_is_refused(board: TaskBoard, hostile: str) -> None:
    with pytest.raises(Invalid):
        board.lock(["fine", hostile], ANN)
    with pytest.raises(Invalid):
        board.add("x", paths=[hostile])
    assert board.locks() == []
    assert board.status() == []


def test_nothing_to_lock_is_refused(board: TaskBoard) -> None:
    with pytest.raises(Invalid):
        board.lock([], ANN)
    with pytest.raises(Invalid):
        board.lock("src", ANN)  # a string is not a list of paths
    with pytest.raises(Invalid):
        board.lock([1], ANN)  # type: ignore[list-item]
