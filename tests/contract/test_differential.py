"""The same calls on two stores give the same answers, the same errors and the same board."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs import BoardTask, Event, Lock, Message, TaskBoard, Worker
from dibs.errors import DibsError
from dibs.model import Record
from tests.clocks import HandClock
from tests.contract.plain import MEMBERS
from tests.contract.stores import HOMES, Home

WORKERS = [
    Worker("ann", session="s1"),
    Worker("ann", session="s2"),
    Worker("ann"),
    Worker("ben", role="lead", session="s1"),
    Worker("eve", "human"),
]
NOWHERE: Mapping[int, int] = {}
Call = tuple[str, tuple[Any, ...], dict[str, Any]]


def call(verb: str, *args: st.SearchStrategy[Any], **options: st.SearchStrategy[Any]) -> st.SearchStrategy[Call]:
    return st.tuples(st.just(verb), st.tuples(*args), st.fixed_dictionaries(options))


ids = st.sampled_from([f"t{i}" for i in range(6)])
workers = st.sampled_from(WORKERS)
paths = st.lists(st.sampled_from([*MEMBERS, "./src//a.py", "../out"]), min_size=1, max_size=3)
lease = st.sampled_from([None, 50, 500.0, 5000, 0])
texts = st.sampled_from(["text", "ünï 🎉", "", "a\0", "\ud800"])
by: dict[str, st.SearchStrategy[Any]] = {"worker": st.none() | workers, "token": st.none() | st.integers(1, 60)}
calls = st.one_of(
    st.tuples(st.just("advance"), st.tuples(st.sampled_from([1, 40, 600, 4000])), st.just({})),
    st.tuples(st.just("jump"), st.tuples(st.sampled_from([1, -1, 5000, -5000])), st.just({})),
    call("claim", workers, lease=lease),
    call("claim", workers, n=st.integers(1, 3), lease=lease),
    call("claim", workers, ids, lease=lease),
    call("claim", workers, n=st.integers(1, 3), request_key=st.sampled_from(["a", "b"])),
    call("add", texts, st.lists(ids, max_size=2), st.integers(-2, 2), id=ids, worker=workers, paths=paths),
    call("complete", ids, texts, **by),
    call("fail", ids, texts, **by),
    call("release", ids, note=texts, **by),
    call("renew", ids, lease=lease, **by),
    call("step", ids, st.sampled_from(["add", "start", "done", "skip"]), texts, **by),
    call("cancel", ids, worker=workers),
    call("retry", ids, worker=workers),
    call("accept", ids, worker=workers),
    call("reject", ids, texts, worker=workers),
    call("block", ids, texts, worker=workers),
    call("unblock", ids, worker=workers),
    call("depend", ids, st.lists(ids, max_size=2), worker=workers),
    call("undepend", ids, st.lists(ids, max_size=1), worker=workers),
    call("lock", paths, workers, shared=st.booleans(), lease=lease),
    call("unlock", st.none() | paths, workers),
    call("locks", st.none() | paths),
    call("tell", texts, st.none() | st.sampled_from(["ann", "ben"]), worker=workers),
    call("inbox", workers, peek=st.booleans(), limit=st.integers(1, 3)),
    call("release_agent_tasks", workers),
    call("recover"),
    call("resolve", st.sampled_from(["t", "t1", "x", ""])),
    call("tasks", label=st.none() | st.just("even"), search=st.none() | st.just("TEXT"), limit=st.integers(1, 9)),
)


def plain(value: Any, places: Mapping[int, int] = NOWHERE, name: str = "") -> Any:
    """An answer in comparable form, with numbers by their place where they have one."""
    if name in ("token", "seq") and isinstance(value, int):
        return places.get(value, value)
    if isinstance(value, BoardTask):
        fields = [field for field in BoardTask.__slots__ if field != "_board"]
        return {field: plain(getattr(value, field), NOWHERE if field == "seq" else places, field) for field in fields}
    if isinstance(value, Record):
        fields = [field for field in value.__slots__ if field[0] != "_"]
        return type(value).__name__, {field: plain(getattr(value, field), places, field) for field in fields}
    if isinstance(value, list | tuple):
        if name == "unlocks":
            return [(pattern, places.get(token, token)) for pattern, token in value]
        return [plain(item, places) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item, places, str(key)) for key, item in value.items()}
    return value


class Side:
    """One of the two boards. Numbers of events, and so tokens, are compared by their place among the board's: some
    stores leave gaps."""

    def __init__(self, board: TaskBoard, clock: HandClock) -> None:
        self.board = board
        self.clock = clock
        self.seen: list[Event] = []
        self.places: dict[int, int] = {}
        self.look()

    def look(self) -> list[Event]:
        """The events since the last look."""
        events = list(self.board.changelog(self.seen[-1].seq if self.seen else 0))
        for event in events:
            self.seen.append(event)
            self.places[event.seq] = len(self.seen)
        return events

    def number(self, place: int) -> int:
        """What stands at a place; beyond the last, a number that nothing has had."""
        return self.seen[place - 1].seq if place <= len(self.seen) else 10**9 + place

    def plain(self, value: Any) -> Any:
        return plain(value, self.places)

    def ask(self, verb: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if verb in ("advance", "jump"):
            return getattr(self.clock, verb)(*args)
        if options.get("token") is not None:
            options = {**options, "token": self.number(options["token"])}
        try:
            answer = getattr(self.board, verb)(*args, **options)
        except DibsError as error:
            self.events = self.look()
            # What is wrong with a path is said in terms of the place where the board is.
            if error.code == "invalid":
                return error.code
            return error.code, error.message, error.hint, self.plain(error.fields)
        self.events = self.look()
        answer = self.plain(answer)
        if verb == "tasks":  # of tasks that began or ended at the same moment, any may come first
            return len(answer[0]), answer[1]
        return sorted(answer) if verb == "release_agent_tasks" else answer

    def everything(self) -> dict[str, Any]:
        """All that can be seen. Events of one call are compared without their order: nothing is said about that."""
        board, plain = self.board, self.plain
        locks: list[Lock] = board.locks()
        messages: list[Message] = [m for m in board.messages() if m.content != LEVELLING]
        return {
            "tasks": plain(sorted(board.tasks(limit=1000)[0], key=lambda task: task.seq)),
            "status": board.status(),
            "counts": plain(board.counts()),
            "locks": plain(locks),
            "messages": plain(messages),
            "events": sorted(repr(numbers(plain(e)[1] | {"seq": 0})) for e in self.events),
            "ready": [[task.id for task in board.ready(worker)] for worker in WORKERS],
            "held": [sorted(task.id for task in board.held_by(worker)) for worker in WORKERS],
            "reasons": [plain(board.reasons(row["id"], WORKERS[0])) for row in board.status()],
            "now": board.now(),
        }


def numbers(value: Any) -> Any:
    """A server that makes an event by itself writes 3600, where others write 3600.0: in JSON one number."""
    if isinstance(value, dict):
        return {key: numbers(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [numbers(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def level(boards: Sequence[TaskBoard]) -> None:
    """A board that is made in a file begins its changelog with that: bring both to the same number of events."""
    first, second = (len(list(board.changelog())) for board in boards)
    for board, missing in zip(boards, (second - first, first - second), strict=True):
        for _ in range(missing):
            board.tell(LEVELLING, "nobody")


LEVELLING = "levelling"

START: list[Call] = [
    ("add", ("text 0",), {"id": "t0", "steps": ["a", "b"], "labels": ["even"]}),
    ("add", ("text 1",), {"id": "t1", "paths": ["src/a.py"], "max_attempts": 0}),
    ("add", ("text 2", ["t0"]), {"id": "t2", "review": True, "labels": ["even"]}),
    ("add", ("text 3", None, 1), {"id": "t3", "reserved": "human", "paths": ["docs"]}),
]


@pytest.mark.parametrize("kind", [kind for kind in HOMES[1:] if not kind.cannot], ids=lambda kind: kind.name)
@given(sequence=st.lists(calls, min_size=5, max_size=40))
def test_a_store_answers_as_memory_does(kind: type[Home], sequence: list[Call]) -> None:
    with tempfile.TemporaryDirectory(prefix="dibs-twins-") as folder:
        clocks = HandClock(), HandClock()
        homes = HOMES[0](Path(folder), clocks[0]), kind(Path(folder), clocks[1])
        boards = [home.open(worker=Worker("starter", "human")) for home in homes]
        level(boards)
        sides = [Side(board, clock) for board, clock in zip(boards, clocks, strict=True)]
        try:
            for verb, args, options in START + sequence:
                if verb == "jump" and not kind.minds_the_clock:
                    continue
                one, two = (side.ask(verb, args, options) for side in sides)
                if verb == "advance" and kind.name == "postgres":
                    # Its short claim leaves locks that have run out, and hinder nobody, to whoever sweeps next.
                    for side in sides:
                        side.board.recover()
                assert one == two, f"{verb}{args}{options}"
                if verb not in ("advance", "jump"):
                    assert sides[0].everything() == sides[1].everything(), f"after {verb}{args}{options}"
        finally:
            for home in homes:
                home.close()
