"""What `dibs team` shows, from scenes made by hand: it fits, it is aligned, and no text can break out of it."""

from __future__ import annotations

import io
import os
import re
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs import TaskBoard, TaskStatus, Worker
from dibs.cli.render import cells
from dibs.cli.team.frame import Frame
from dibs.cli.team.news import News
from dibs.cli.team.output import Output
from dibs.cli.team.scene import ENDED, FAILS, RUNNING, WORKING, Row, Scene, Watcher
from dibs.cli.team.summary import Outcome, report
from dibs.errors import DibsError
from dibs.pool import AgentResult, PoolEvent

SGR = re.compile(r"\x1b\[[0-9;]*m")
EVIL = "\x1b[2J\x1b]0;gotcha\x07 \u202egnihtemos\r\n\x00 购物车 e\u0301"


def rows(count: int) -> list[Row]:
    lead = Row("lead", 1, RUNNING, "leads", 80, 0, leads=True)
    workers = [
        Row(f"worker-{n}", 1 + n % 2, WORKING, f"t{n}: Cart: add, remove, count", n, n % 4) for n in range(1, count)
    ]
    return [lead, *workers]


def busy(count: int = 5, tasks: int = 40, text: str = "write the cart") -> Scene:
    scene_rows = rows(count)
    for row in scene_rows[1:]:
        row.text = text
    return Scene(
        "dibs team: some workers and a lead, claude",
        83,
        counts={"completed": tasks // 4, "in_progress": min(4, tasks), "pending": tasks // 2, "failed": 1},
        total=tasks,
        ready=min(64, tasks // 4),
        rows=scene_rows,
        locks=[(f"src/{text}/{n}.py", f"worker-{n}") for n in range(1, 6)],
        messages=[("worker-1", None, text), ("lead", "worker-2", text)],
        events=[(float(n), f"worker-{n}", f"claimed t{n}: {text}", n % 3 == 0) for n in range(20)],
        output=[("worker-1", text)] * 3,
        remark="stopping 4 agents",
    )


def draw(scene: Scene, width: int = 79, height: int = 24, *, color: bool = False, encoding: str = "utf-8") -> list[str]:
    return Frame(width, height, color=color, encoding=encoding).lines(scene)


# -- it fits


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "iso-8859-1"])
@pytest.mark.parametrize("size", [(16, 4), (39, 10), (59, 12), (79, 24), (119, 60)])
@pytest.mark.parametrize(("agents", "tasks"), [(1, 0), (5, 1), (65, 100_000)])
def test_a_frame_fits_every_terminal(size: tuple[int, int], agents: int, tasks: int, encoding: str) -> None:
    for text in ("write the cart", EVIL, "word " * 20_000, "x" * 70_000, ""):
        lines = draw(busy(agents, tasks, text), *size, encoding=encoding)
        assert len(lines) <= size[1]
        assert max(map(cells, lines)) <= size[0]
        assert all(line.isprintable() for line in lines)
        for line in lines:
            line.encode(encoding)


@given(st.text(max_size=200), st.integers(16, 130), st.integers(4, 50), st.booleans())
def test_no_text_breaks_out_of_a_frame(text: str, width: int, height: int, color: bool) -> None:
    for line in draw(busy(4, 20, text), width, height, color=color):
        plain = SGR.sub("", line)
        assert plain.isprintable()
        assert cells(plain) <= width
        assert line.count("\x1b[0m") * 2 == line.count("\x1b")  # every colour is taken back


def test_the_columns_of_the_agents_stand_below_each_other() -> None:
    scene = busy(4)
    scene.rows[1].text, scene.rows[2].text = "购物车：添加、删除、计数" * 5, "e\u0301 " * 80
    lines = draw(scene)
    table = lines[4:9]
    assert [line.split()[0] for line in table] == ["AGENT", "lead", "worker-1", "worker-2", "worker-3"]
    where = table[0].index("STATE")
    assert [line[where:].split()[0] for line in table[1:]] == [RUNNING, WORKING, WORKING, WORKING]
    assert {cells(line) for line in table} == {79}
    assert table[2].startswith("worker-1 #2")


def test_colours_change_nothing_but_colours() -> None:
    assert [SGR.sub("", line) for line in draw(busy(), color=True)] == draw(busy())


# -- it says what matters


def test_a_frame_says_how_far_it_is_and_who_does_what() -> None:
    text = "\n".join(draw(busy(3)))
    assert "1m 23s" in text
    assert "10 of 40 done" in text
    assert "1 failed   4 in progress   10 ready   10 waiting" in text
    assert "worker-1 to all: write the cart" in text
    assert "lead to worker-2: write the cart" in text
    assert "5 locks: src/write the cart/1.py (worker-1)" in text
    assert "claimed t19: write the cart" in text
    assert "worker-1 | write the cart" in text
    assert text.endswith("stopping 4 agents")


def test_an_empty_board_and_a_finished_one_are_said_to_be_so() -> None:
    assert "no tasks yet" in "\n".join(draw(Scene("dibs team: 1 worker", 0, rows=rows(1))))
    done = Scene("dibs team: 1 worker", 9, counts={"completed": 3, "cancelled": 1}, total=4)
    assert "3 of 3 done" in "\n".join(draw(done))
    done.counts = {"completed": 3}
    assert "nothing is left to do" in "\n".join(draw(done))


def test_more_ready_tasks_than_are_counted_are_not_taken_for_all() -> None:
    scene = Scene("", 0, counts={"pending": 5000}, total=5000, ready=64)
    assert [text for text, _ in scene.tally()] == ["64 or more ready", "5,000 pending"]


def test_where_not_all_agents_fit_the_lead_and_those_at_work_are_shown_and_the_others_counted() -> None:
    scene = busy(65)
    for row in scene.rows[1:61]:
        row.state, row.text = ENDED, ""
    scene.rows[50].state = FAILS
    lines = draw(scene)
    shown = [line.split()[0] for line in lines if line.startswith(("lead ", "worker-")) and WORKING in line]
    assert shown == ["worker-61", "worker-62", "worker-63", "worker-64"]
    assert any(line.startswith("lead ") for line in lines)
    assert any(line.startswith("worker-50") and FAILS in line for line in lines)
    rest = next(line for line in lines if line.startswith("and "))
    assert re.fullmatch(r"and \d+ more: \d+ ended", rest)


def test_on_the_smallest_terminal_the_agents_and_the_last_event_are_still_there() -> None:
    scene = busy(4)
    scene.remark = ""
    lines = draw(scene, 39, 10)
    assert [line.split()[0] for line in lines[3:7]] == ["lead", "worker-1", "worker-2", "worker-3"]
    assert "claimed t19" in lines[-1]


# -- the watcher


def agent(**more: object) -> SimpleNamespace:
    plain = {"name": "worker-1", "role": "worker", "state": "running", "run": 1, "since": 0.0, "status": None}
    return SimpleNamespace(**{**plain, "error": None, "tasks": [], "is_given_up": False, **more})


class Board:
    """As much of a pool as is looked at, over a real board."""

    def __init__(self, *agents: SimpleNamespace) -> None:
        self.board = TaskBoard()
        self.agents = list(agents)
        self.asked = 0
        self.broken: Exception | None = None

    def standing(self) -> object:
        from dibs.pool.standing import look

        self.asked += 1
        if self.broken is not None:
            raise self.broken
        return look(self.board, dict.fromkeys([each.name for each in self.agents], "s"))


def test_the_watcher_shows_tasks_locks_and_messages_and_asks_the_board_not_too_often() -> None:
    pool = Board(agent(), agent(name="worker-2"))
    pool.board.add("the cart", id="cart", paths=["shop/cart.py"])
    pool.board.add("the rest")
    pool.board.claim(Worker("worker-1", session="s"), "cart")
    pool.board.tell("of an earlier run", None, worker="worker-2")
    watcher = Watcher("a title", pool)
    scene = watcher.look()
    assert [(row.state, row.text) for row in scene.rows] == [(WORKING, "cart: the cart"), (RUNNING, "looks for work")]
    assert scene.locks == [("shop/cart.py", "worker-1")]
    assert scene.messages == []
    assert (scene.total, scene.ready, scene.tasks("in_progress")) == (2, 1, 1)
    for _ in range(50):
        watcher.look()
    assert pool.asked == 1
    pool.board.tell("hello", None, worker="worker-2")
    watcher._asked = float("-inf")
    assert watcher.look().messages == [("worker-2", None, "hello")]


def test_a_board_that_cannot_be_read_is_remarked_on_and_the_last_picture_stays() -> None:
    pool = Board(agent())
    pool.board.add("the cart")
    watcher = Watcher("a title", pool)
    watcher.look()
    pool.broken = DibsError("the disk is full")
    watcher._asked = float("-inf")
    scene = watcher.look()
    assert scene.total == 1
    assert "the disk is full" in scene.remark


@pytest.mark.parametrize(
    ("more", "state", "text"),
    [
        ({"state": "waiting"}, "waiting", "work"),
        ({"state": "restarting", "error": "exit code 1"}, "restarts", "exit code 1"),
        ({"state": "ended", "status": "completed"}, "ended", ""),
        ({"state": "ended", "status": "error", "error": "exit code 1"}, "failed", "exit code 1"),
        ({"state": "ended", "status": "completed", "is_given_up": True}, "failed", "without finishing"),
        ({"state": "ended", "status": "timeout", "error": "after 5 s"}, "timed out", "after 5 s"),
        ({"role": "lead"}, "running", "leads"),
    ],
)
def test_every_state_of_an_agent_has_a_word(more: dict[str, object], state: str, text: str) -> None:
    row = Watcher("", Board(agent(**more))).look().rows[0]
    assert row.state == state
    assert text in row.text


# -- the news


def board_event(action: str, worker: str, task: str | None, details: str | None = None) -> PoolEvent:
    data = {"seq": 1, "action": action, "task_id": task, "worker": worker, "details": details}
    return PoolEvent("board", worker, 0.0, f"{worker} {action}", **data)


def test_tasks_that_are_added_together_are_told_together() -> None:
    news = News(Watcher(""))
    for n in range(7):
        assert news.of(board_event("added_activity", "lead", f"t{n}")) == []
    told = news.of(board_event("claimed_activity", "worker-1", "t0"))
    assert [(who, text) for _, who, text, _ in told] == [
        ("lead", "added 7 tasks: t0, t1, t2, t3, t4, …"),
        ("worker-1", "claimed t0"),
    ]
    news.of(board_event("added_activity", "lead", "x"))
    told = news.of(board_event("added_activity", "worker-1", "y"))
    assert [(who, text) for _, who, text, _ in [*told, *news.rest()]] == [("lead", "added x"), ("worker-1", "added y")]
    assert news.rest() == []


def test_what_is_bad_is_marked_and_what_is_dull_is_left_out() -> None:
    news = News(Watcher(""))
    for action in ("renewed_activity", "renewed_locks", "locked_files", "unlocked_files"):
        assert news.of(board_event(action, "worker-1", "t1")) == []
    assert news.of(board_event("failed_activity", "worker-1", "t1", "no API"))[0][1:] == (
        "worker-1",
        "failed t1: no API",
        True,
    )
    ended = PoolEvent("agent_ended", "worker-1", 0.0, "worker-1 has ended: exit code 1", status="error")
    assert news.of(ended)[0][1:] == ("worker-1", "has ended: exit code 1", True)
    assert news.of(board_event("sent_message", "worker-1", None, "hello"))[0][2] == "told everybody: hello"


# -- the output


@pytest.fixture
def pipe() -> Iterator[tuple[int, io.TextIOWrapper]]:
    reader, writer = os.pipe()
    stream = open(writer, "w", encoding="utf-8")  # noqa: SIM115 - closed below
    yield reader, stream
    stream.close()
    try:
        os.close(reader)
    except OSError:
        pass  # a test was the reader that goes away


def test_a_reader_who_pauses_holds_up_nobody_and_misses_nothing(pipe: tuple[int, io.TextIOWrapper]) -> None:
    reader, stream = pipe
    out = Output(stream)
    wanted = "".join(f"{n} {'x' * 1000}\n" for n in range(1000))
    for line in wanted.splitlines(keepends=True):
        out.put(line)  # many times what a pipe holds: this would block for ever
    assert not out.drain(0.05)
    assert not out.is_idle
    found = bytearray()

    def read() -> None:
        while len(found) < len(wanted):
            found.extend(os.read(reader, 65536))

    thread = threading.Thread(target=read)
    thread.start()
    out.close()
    thread.join()
    assert found.decode() == wanted


def test_a_reader_who_goes_away_is_noticed_with_and_without_writing(pipe: tuple[int, io.TextIOWrapper]) -> None:
    reader, stream = pipe
    out = Output(stream)
    assert not out.reader_has_gone()
    os.close(reader)
    assert out.reader_has_gone()
    assert out.failure is None
    out.put("x")
    assert out.drain(60)
    assert isinstance(out.failure, BrokenPipeError)
    out.put("y")
    out.close()


def test_without_a_standard_output_nothing_happens() -> None:
    out = Output(None)
    out.put("x")
    assert out.is_idle
    assert not out.reader_has_gone()
    out.close()


# -- the summary


def outcome(ending: str, *results: AgentResult, **counts: int) -> Outcome:
    made = Outcome(ending, "the reason why", 75.0, results)
    made.counts = {"pending": 0, "in_progress": 0, "review": 0, "completed": 0, "failed": 0, "cancelled": 0, **counts}
    made.folder = os.path.join(os.getcwd(), ".dibs", "team", "run")
    return made


def test_the_summary_says_who_did_what_and_what_to_do_next() -> None:
    good = AgentResult("worker-1", "worker", "completed", tasks=["a", "b"], runs=2, duration=70.0)
    bad = AgentResult("worker-2", "worker", "error", error="exit code 3", runs=3, output_file=".dibs/team/run/w.3.log")
    made = outcome("gave up", good, bad, completed=2, pending=1, failed=1)
    made.newly_failed, made.left = 1, [("c", TaskStatus.PENDING, "the rest"), ("d", TaskStatus.FAILED, "the roof")]
    text = "\n".join(report(made, 80, False))
    assert text.startswith("dibs team: gave up after 1m 15s\n  the reason why\n")
    assert re.search(r"^worker-1 +completed +2 +1m 10s +2: a, b$", text, re.MULTILINE)
    assert "worker-2: exit code 3" in text
    for command in (
        "dibs list ",
        "dibs show c",
        "dibs retry d",
        "dibs log",
        "ls .dibs/team/run",
        "tail .dibs/team/run/w.3.log",
    ):
        assert f"  {command}" in text
    assert not made.is_good


def test_a_summary_fits_the_screen_and_obeys_nobody() -> None:
    results = [
        AgentResult(f"{EVIL}{n}", "worker", "error", error=EVIL * 20, tasks=["t"] * 500, runs=1) for n in range(4)
    ]
    made = outcome("stuck", *results, pending=3, completed=2000)
    made.why = EVIL * 20
    made.left = [("c" * 60, TaskStatus.PENDING, EVIL * 20)]
    for width in (40, 80, 120):
        for line in report(made, width, False):
            assert line.isprintable()
            command = line.startswith(("  dibs ", "  ls "))  # is given whole, or it would be of no use
            assert cells(line) <= width or (command and not line.endswith("done"))


def test_a_run_in_which_tasks_failed_is_not_good_though_it_is_done() -> None:
    made = outcome("done", completed=2, failed=1)
    assert made.is_good
    made.newly_failed = 1
    assert not made.is_good
