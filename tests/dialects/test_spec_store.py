"""Document 003's space of locks, through the board."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dibs import TaskBoard, TaskStatus, Worker
from dibs.dialects import spec as module
from dibs.errors import Busy, NotClaimable, NotHolder, Unsupported
from dibs.guards.naming import rename_to_new
from dibs.worker import of_process
from tests.clocks import HandClock

ANN = Worker("ann")
BEN = Worker("ben")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "spec"


@pytest.fixture
def board(folder: Path) -> Iterator[TaskBoard]:
    with TaskBoard.open(f"spec:{folder}", create=True, durability="normal") as made:
        yield made


def owner(folder: Path, kind: str, name: str) -> list[str]:
    return (folder / ".locks" / kind / name / "owner").read_text("utf-8").splitlines()


def sh(script: str, folder: Path) -> str:
    """The document's own commands, beside `spec`."""
    done = subprocess.run(["sh", "-c", script], cwd=folder.parent, capture_output=True, text=True, check=True)
    return done.stdout


def test_a_claim_is_the_documents_folder_and_owner_file(board: TaskBoard, folder: Path) -> None:
    task = board.claim(ANN, "T1")
    assert task is not None
    lines = owner(folder, "tasks", "T1")
    assert lines[:2] == ["agent: ann", "task: T1"]
    assert lines[2].startswith("timestamp: 20")
    assert len(lines) == 3
    board.complete("T1", "done", worker=ANN)
    assert os.listdir(folder / ".locks" / "tasks") == []


def test_any_id_can_be_claimed_and_one_worker_gets_it(board: TaskBoard) -> None:
    board.claim(ANN, "T1")
    with pytest.raises(NotClaimable, match=r"ann until it is given back"):
        board.claim(BEN, "T1")
    assert board.claim(BEN, "T2") is not None
    assert [task.id for task in board.tasks()[0]] == ["T1", "T2"]
    with pytest.raises(NotHolder):
        board.release("T1", worker=BEN)


def test_there_is_no_list_of_tasks(board: TaskBoard) -> None:
    for attempt in (lambda: board.claim(ANN), lambda: board.add("x"), lambda: board.add("x", id="T1")):
        with pytest.raises(Unsupported) as caught:
            attempt()
        assert caught.value.fields["capability"] == "lists of tasks"


@pytest.mark.parametrize(
    ("ask", "capability"),
    [
        (lambda board: board.lock(["a"], ANN, shared=True), "shared locks"),
        (lambda board: board.lock(["a"], ANN, lease=5), "leases"),
        (lambda board: board.lock(["src/**"], ANN), "patterns"),
        (lambda board: board.claim(ANN, "T2", lease=5), "leases"),
        (lambda board: board.fail("T1", "no", worker=ANN), "failed tasks"),
        (lambda board: board.cancel("T1", worker=ANN), "cancelled tasks"),
        (lambda board: board.block("T1", "why", worker=ANN), "blockers"),
        (lambda board: board.step("T1", "add", "one", worker=ANN), "steps"),
    ],
)
def test_what_the_format_has_no_place_for_is_refused(
    board: TaskBoard, folder: Path, ask: object, capability: str
) -> None:
    board.claim(ANN, "T1")
    before = sorted(str(path) for path in folder.rglob("*"))
    with pytest.raises(Unsupported) as caught:
        ask(board)  # type: ignore[operator]
    assert caught.value.fields["capability"] == capability
    assert caught.value.hint
    assert sorted(str(path) for path in folder.rglob("*")) == before


class TestFiles:
    def test_a_lock_has_the_documents_name_and_records_the_path(self, board: TaskBoard, folder: Path) -> None:
        board.claim(ANN, "T1")
        board.lock(["src/a:b.py"], ANN)
        lines = owner(folder, "files", "src__a_b.py")
        assert (lines[0], lines[1], lines[3]) == ("agent: ann", "task: T1", "path: src/a:b.py")
        with pytest.raises(Busy, match="ann"):
            board.lock(["src/a:b.py"], BEN)

    def test_locks_go_with_the_task_for_which_they_were_taken(self, board: TaskBoard, folder: Path) -> None:
        board.lock(["free.py"], ANN)
        board.claim(ANN, "T1")
        board.lock(["a.py", "b.py"], ANN)
        board.release("T1", worker=ANN)
        assert os.listdir(folder / ".locks" / "files") == ["free.py"]
        board.unlock(None, ANN)
        assert os.listdir(folder / ".locks" / "files") == []

    def test_all_of_a_request_or_none(self, board: TaskBoard, folder: Path) -> None:
        board.lock(["b.py"], BEN)
        with pytest.raises(Busy):
            board.lock(["a.py", "b.py"], ANN)
        assert os.listdir(folder / ".locks" / "files") == ["b.py"]

    def test_two_paths_with_one_lock_name_are_told_apart(self, board: TaskBoard) -> None:
        board.lock(["a/b"], ANN)
        with pytest.raises(Busy, match=r"ann holds a/b, which has the same lock name"):
            board.lock(["a__b"], BEN)

    def test_files_whose_names_begin_with_a_dot_are_files_too(self, board: TaskBoard, folder: Path) -> None:
        board.lock([".env", ".github/x.yml"], ANN)
        assert sorted(lock.pattern for lock in board.locks()) == [".env", ".github/x.yml"]
        with pytest.raises(Busy, match="ann"):
            board.lock([".env"], BEN)
        board.unlock(None, ANN)
        assert os.listdir(folder / ".locks" / "files") == []

    def test_a_hands_other_spelling_of_a_path_is_the_same_file(self, board: TaskBoard, folder: Path) -> None:
        (folder / ".locks" / "files" / ".__z.py").mkdir()
        (folder / ".locks" / "files" / ".__z.py" / "owner").write_text("agent: hand\n", "utf-8")
        with pytest.raises(Busy, match="hand"):
            board.lock(["z.py"], ANN)
        board.release_agent_tasks("hand")
        assert os.listdir(folder / ".locks" / "files") == []

    @pytest.mark.parametrize(
        "name", ["src____init__.py", ".__src____init__.py", "{place}__src____init__.py", "src__sub____main__.py"]
    )
    @pytest.mark.parametrize("is_there", [True, False])
    def test_what_a_hand_has_locked_is_not_had_by_the_path_that_it_meant(
        self, board: TaskBoard, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_there: bool
    ) -> None:
        """The document's name for a path does not tell which path it is: more than one has it."""
        monkeypatch.chdir(folder.parent)
        path = "src/sub/__main__.py" if "main" in name else "src/__init__.py"
        if is_there:
            Path(path).parent.mkdir(parents=True)
            Path(path).touch()
        lock = folder / ".locks" / "files" / name.format(place=str(folder.parent.resolve()).replace("/", "__"))
        lock.mkdir()
        (lock / "owner").write_text("agent: hand\ntask: T1\n", "utf-8")
        for asked in (path, str(Path(path).resolve()), "src"):
            with pytest.raises(Busy, match="hand"):
                board.lock([asked], ANN)
        assert [(held.pattern, held.holder.name) for held in board.locks([path])] == [(path, "hand")]
        assert board.locks(["other.py", "src/__init__", "src2/__init__.py"]) == []
        if is_there:
            assert [held.pattern for held in board.locks()] == [path]
            board.unlock([path], "hand")
        else:
            board.release_agent_tasks("hand")
        assert os.listdir(folder / ".locks" / "files") == []
        assert board.lock([path], ANN)

    def test_both_paths_that_a_hand_may_have_meant_are_held(self, board: TaskBoard, folder: Path) -> None:
        (folder.parent / "a").mkdir()
        (folder.parent / "a" / "b").touch()
        (folder / ".locks" / "files" / "a__b").mkdir()
        for path in ("a/b", "a__b"):
            with pytest.raises(Busy, match="somebody"):
                board.lock([path], ANN)

    def test_asking_again_is_fine(self, board: TaskBoard) -> None:
        first = board.lock(["a.py"], ANN)
        assert [lock.token for lock in board.lock(["a.py"], ANN)] == [lock.token for lock in first]


class TestBesideHands:
    def test_what_a_hand_took_is_held(self, board: TaskBoard, folder: Path) -> None:
        sh("mkdir spec/.locks/tasks/T1 && printf 'agent: hand\ntask: T1\n' > spec/.locks/tasks/T1/owner", folder)
        with pytest.raises(NotClaimable, match="hand"):
            board.claim(ANN, "T1")

    def test_what_dibs_took_is_busy_for_a_hand(self, board: TaskBoard, folder: Path) -> None:
        board.claim(ANN, "T1")
        script = "mkdir spec/.locks/tasks/T1 2>/dev/null && echo ACQUIRED || echo BUSY"
        assert sh(script, folder) == "BUSY\n"
        board.release("T1", worker=ANN)
        assert sh(script, folder) == "ACQUIRED\n"

    def test_a_folder_without_an_owner_is_held(self, board: TaskBoard, folder: Path) -> None:
        (folder / ".locks" / "tasks" / "T1").mkdir()
        with pytest.raises(NotClaimable, match="somebody"):
            board.claim(ANN, "T1")
        with pytest.raises(Busy, match="no owner yet"):
            board.recover(task_id="T1")
        os.utime(folder / ".locks" / "tasks" / "T1", (0, 0))
        assert board.recover(task_id="T1") == ["T1"]

    def test_a_hand_that_is_faster_wins_and_nothing_stays_behind(
        self, board: TaskBoard, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The folder appears between our look and our mkdir."""
        real = rename_to_new

        def hand_first(draft: str, path: str) -> bool:
            if path.endswith("b.py"):
                os.mkdir(path)
                Path(path, "owner").write_text("agent: hand\n", "utf-8")
            return real(draft, path)

        monkeypatch.setattr(module, "rename_to_new", hand_first)
        with pytest.raises(Busy, match="hand took it a moment ago"):
            board.lock(["a.py", "b.py"], ANN)
        assert os.listdir(folder / ".locks" / "files") == ["b.py"]

    def test_a_link_is_not_followed(self, board: TaskBoard, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        (folder / ".locks" / "tasks" / "T1").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(NotClaimable):
            board.claim(ANN, "T1")
        assert list((tmp_path / "elsewhere").iterdir()) == []


class TestRecovery:
    def test_by_worker(self, board: TaskBoard, folder: Path) -> None:
        board.claim(ANN, "T1")
        board.lock(["a.py"], ANN)
        board.claim(BEN, "T2")
        assert board.recover(name="ann") == ["T1"]
        assert os.listdir(folder / ".locks" / "files") == []
        assert os.listdir(folder / ".locks" / "tasks") == ["T2"]

    def test_of_everything(self, board: TaskBoard, folder: Path) -> None:
        board.claim(ANN, "T1")
        board.lock(["a.py"], BEN)
        board.claim(of_process("alive"), "T3")
        assert board.recover(everyone=True) == ["T1"]
        assert os.listdir(folder / ".locks" / "tasks") == ["T3"]
        assert os.listdir(folder / ".locks" / "files") == []

    def test_what_is_in_the_making_does_not_keep_the_rest(self, board: TaskBoard, folder: Path) -> None:
        board.claim(ANN, "T1")
        (folder / ".locks" / "tasks" / "T2").mkdir()
        assert board.recover(everyone=True) == ["T1"]
        assert os.listdir(folder / ".locks" / "tasks") == ["T2"]

    def test_a_living_process_keeps_what_it_has(self, board: TaskBoard) -> None:
        board.claim(of_process("alive"), "T1")
        with pytest.raises(NotHolder, match="is running"):
            board.recover(task_id="T1")

    def test_nothing_expires(self, folder: Path) -> None:
        clock = HandClock()
        board = TaskBoard.open(f"spec:{folder}", create=True, clock=clock)
        board.claim(ANN, "T1")
        clock.advance(10 * 365 * 86_400)
        with pytest.raises(NotClaimable):
            board.claim(BEN, "T1")
        assert board.recover() == []


class TestAcquiring:
    def test_the_task_and_its_files(self, board: TaskBoard) -> None:
        got = board.acquire([("T1", ["a.py", "b.py"])], ANN)
        assert got
        assert got.task is not None
        assert got.task.id == "T1"
        assert [lock.pattern for lock in got.locks] == ["a.py", "b.py"]

    def test_a_busy_file_leads_to_the_next_task_with_everything_given_back(
        self, board: TaskBoard, folder: Path
    ) -> None:
        board.lock(["b.py"], BEN)
        board.claim(BEN, "T2")
        got = board.acquire([("T1", ["a.py", "b.py"]), ("T2", []), ("T3", ["a.py"])], ANN, retry=0)
        assert got.task is not None
        assert got.task.id == "T3"
        assert [(c.task_id, c.path, c.holder) for c in got.conflicts] == [("T1", "b.py", "ben"), ("T2", None, "ben")]
        assert sorted(os.listdir(folder / ".locks" / "tasks")) == ["T2", "T3"]

    def test_nothing_to_be_had(self, board: TaskBoard, folder: Path) -> None:
        board.claim(BEN, "T1")
        got = board.acquire([("T1", ["a.py"])], ANN, retry=0)
        assert not got
        assert got.task is None
        assert got.locks == []
        assert os.listdir(folder / ".locks" / "files") == []

    def test_on_a_board_with_tasks_too(self) -> None:
        board = TaskBoard()
        board.add("x", id="t1")
        board.lock(["a.py"], BEN)
        assert not board.acquire([("t1", ["a.py"])], ANN, retry=0)
        assert board.get("t1").status is TaskStatus.PENDING
        board.unlock(None, BEN)
        assert board.acquire([("t1", ["a.py"])], ANN, retry=0)


class Killed(BaseException):
    pass


@pytest.mark.parametrize("removed", ["a.py", "b.py"])
def test_what_a_hand_removed_of_a_request_that_died_is_not_made_again(
    board: TaskBoard, folder: Path, monkeypatch: pytest.MonkeyPatch, removed: str
) -> None:
    def dies(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("dibs.dialects.eventlog.EventLog.append", dies)
        patch.setattr(module.SpecStore, "_give_up_made", lambda _: None)
        with pytest.raises(Killed):
            board.lock(["a.py", "b.py"], ANN)
    sh(f"rm -rf spec/.locks/files/{removed}", folder)
    with TaskBoard.open(f"spec:{folder}", durability="normal") as other:
        other.claim(BEN, "T1")
        left = ({"a.py", "b.py"} - {removed}).pop()
        assert [(lock.pattern, lock.holder.name) for lock in other.locks()] == [(left, "ann")]
