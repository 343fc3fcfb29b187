"""`bilu:DIR` on its own files: what dibs writes into them, what it leaves alone, and whose word counts."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dibs import BoardTask, TaskBoard, TaskStatus, fs
from dibs.dialects import bilu_text
from dibs.dialects.bilu import BiluStore
from dibs.dialects.bilu_rows import divided, joined
from dibs.dialects.filestore import NOBODY
from dibs.errors import (
    BoardUnusable,
    Busy,
    DibsError,
    Duplicate,
    Invalid,
    LeaseLost,
    NoBoard,
    NotClaimable,
    Unsupported,
)
from dibs.guards.lockdir import HINT, LockDirGuard
from tests.clocks import START, HandClock
from tests.contract.people import ANN, BEN, EVE, take
from tests.contract.state import differences, fields

GOLDEN = Path(__file__).parent / "golden" / "bilu"


class Place:
    """A board's folder, for hands and for dibs."""

    def __init__(self, folder: Path, clock: HandClock, storage: str = "storage") -> None:
        self.folder = folder
        self.clock = clock
        self.tasks = folder / "board" / "tasks"
        self.storage = folder / storage
        self.lock = self.storage / "lock"
        self.claims = self.storage / ".dibs" / "claims.json"

    def open(self, query: str = "", **options: Any) -> TaskBoard:
        return TaskBoard.open(
            f"bilu:{self.folder}{query}", create=True, durability="normal", clock=self.clock, **options
        )

    def read(self, stem: str) -> str:
        return (self.tasks / f"{stem}.md").read_text()

    def write(self, stem: str, text: str) -> None:
        self.tasks.mkdir(parents=True, exist_ok=True)
        (self.tasks / f"{stem}.md").write_text(text)

    def say(self, stem: str, status: str) -> None:
        """A hand changes a status, as an editor or a script would: in place, taking no care to be seen."""
        file = bilu_text.parse(stem, (self.tasks / f"{stem}.md").read_bytes())
        file.change(status=status)
        with open(self.tasks / f"{stem}.md", "r+b") as out:
            out.write(file.render())
            out.truncate()

    def status(self, stem: str) -> str:
        return bilu_text.parse(stem, (self.tasks / f"{stem}.md").read_bytes()).status


@pytest.fixture
def place(tmp_path: Path, clock: HandClock) -> Place:
    return Place(tmp_path / ".bilu", clock)


@pytest.fixture
def golden(place: Place) -> Place:
    shutil.copytree(GOLDEN / "board", place.folder / "board")
    return place


class TestFiles:
    def test_a_new_task_is_a_file_in_the_documents_form(self, place: Place) -> None:
        board = place.open()
        first = board.add("Lay out the directories")
        second = board.add(
            "Say which messages exist\n\nAll of them.\nAnd why.", [first], 8, labels=["backend", "design"]
        )
        assert (first, second) == ("01-lay-out-the-directories", "02-say-which-messages-exist")
        assert place.read(second) == (
            "# Say which messages exist\n\n# Description\nAll of them.\nAnd why.\n# Status\nTODO\n# Priority\nHIGH\n"
            "# Kind\ntask\n# Tags\n- backend\n- design\n# depends_on\n- board/tasks/01-lay-out-the-directories.md\n"
        )
        assert not place.lock.exists()

    def test_a_board_with_files_of_shape_a_gets_more_of_them(self, golden: Place) -> None:
        assert golden.read(golden.open().add("New")).startswith("# Title\nNew\n\n# Description\n")

    def test_the_file_has_the_documents_words_for_what_happens(self, place: Place) -> None:
        board = place.open()
        board.add("x", id="t")
        assert place.status("t") == "TODO"
        take(board, ANN)
        assert place.status("t") == "INPROGRESS"
        board.release("t", worker=ANN)
        assert place.status("t") == "TODO"
        board.block("t", "no password", worker=EVE)
        assert place.status("t") == "BLOCKED"
        board.unblock("t", worker=EVE)
        assert place.status("t") == "TODO"
        board.cancel("t", worker=EVE)
        assert place.status("t") == "CANCELLED"
        board.retry("t", worker=EVE)
        take(board, ANN).complete("done")
        assert place.status("t") == "DONE"

    def test_only_the_line_that_changes_is_changed_and_other_files_are_not_written(self, golden: Place) -> None:
        board = golden.open()
        before = {path.name: (path.read_bytes(), path.stat().st_ino) for path in golden.tasks.iterdir()}
        golden.say("01-scaffold", "DONE")
        scaffold = (golden.tasks / "01-scaffold.md").stat().st_ino
        board.claim(ANN, "02-contracts")
        text = golden.read("02-contracts")
        assert text == before["02-contracts.md"][0].decode().replace("to do", "INPROGRESS")
        for name in ("10-constraints.md", "notes.md"):
            path = golden.tasks / name
            assert (path.read_bytes(), path.stat().st_ino) == before[name]
        assert (golden.tasks / "01-scaffold.md").stat().st_ino == scaffold

    def test_permissions_stay(self, place: Place) -> None:
        place.write("t", "# T\n# Status\nTODO\n")
        (place.tasks / "t.md").chmod(0o640)
        place.open().claim(ANN)
        assert (place.tasks / "t.md").stat().st_mode & 0o777 == 0o640

    def test_a_dependency_is_written_in_the_manner_of_the_file(self, golden: Place) -> None:
        board = golden.open()
        before = golden.read("02-contracts")
        new = board.add("Sort out [the] rest")
        board.depend("02-contracts", [new], worker=EVE)
        assert golden.read("02-contracts") == before + "- [Sort out (the) rest](./11-sort-out-the-rest.md)\n"
        board.undepend("02-contracts", [new], worker=EVE)
        assert golden.read("02-contracts") == before

    def test_the_derived_files_are_left_to_rebuild(self, golden: Place) -> None:
        before = {name: (golden.folder / "board" / name).read_bytes() for name in ("default.json", "records.tsv")}
        golden.open().add("More")
        assert {name: (golden.folder / "board" / name).read_bytes() for name in before} == before

    def test_an_unnumbered_board_stays_so(self, place: Place) -> None:
        place.write("notes", "# Notes\n# Status\nTODO\n")
        board = place.open()
        assert [board.add("Fix it!"), board.add("Fix it?")] == ["fix-it", "fix-it-2"]

    def test_numbers_go_on_from_the_highest(self, golden: Place) -> None:
        board = golden.open()
        assert [board.add("New"), *board.add_many([{"description": "Newer"}, {"description": "日本"}])] == [
            "11-new",
            "12-newer",
            "13-task",
        ]

    @pytest.mark.parametrize("task_id", ["CON", "nul.txt", "a.md", "dot."])
    def test_an_id_that_some_system_could_not_hold_is_refused(self, place: Place, task_id: str) -> None:
        board = place.open()
        with pytest.raises(Invalid):
            board.add("x", id=task_id)
        assert list(place.tasks.iterdir()) == []

    def test_so_is_one_that_differs_only_by_case(self, place: Place) -> None:
        board = place.open()
        board.add("x", id="Fix")
        with pytest.raises(Duplicate, match="only by case"):
            board.add("y", id="fix")
        with pytest.raises(Duplicate, match="only by case"):
            board.add_many([{"description": "a", "id": "new"}, {"description": "b", "id": "NEW"}])
        assert [path.name for path in place.tasks.iterdir()] == ["Fix.md"]

    def test_text_that_would_be_a_heading_is_refused_and_nothing_is_written(self, place: Place) -> None:
        board = place.open()
        with pytest.raises(Invalid, match="description"):
            board.add("Do it\n\n# Status\nDONE")
        assert list(place.tasks.iterdir()) == []


class TestReading:
    def test_the_golden_board_is_read_as_the_document_says(self, golden: Place) -> None:
        rows = {row["id"]: row for row in golden.open().status()}
        assert list(rows) == ["01-scaffold", "02-contracts", "10-constraints", "notes"]
        assert {i: (row["status"], row["priority"], row["depends_on"]) for i, row in rows.items()} == {
            "01-scaffold": ("in_progress", 8, []),
            "02-contracts": ("pending", 10, ["01-scaffold", "10-constraints"]),
            "10-constraints": ("completed", 1, []),
            "notes": ("pending", 5, ["01-scaffold", "02-contracts"]),
        }
        assert rows["10-constraints"]["description"] == "Phase 00 — Constraints\n\nPOSIX sh, nothing else."

    def test_weights_come_from_the_settings(self, place: Place) -> None:
        place.write("t", "# T\n# Status\nTODO\n# Priority\nHIGH\n")
        board = place.open()
        assert board.get("t").priority == 8
        (place.folder / "board" / "config.json").write_text(
            '{"statuses": {}, "priorities": {"CRITICAL": 50, "HIGH": 40, "MEDIUM": 30, "LOW": 20, "TRIVIAL": 10},'
            ' "kind": {}}'
        )
        assert board.get("t").priority == 40
        assert board.get(board.add("x", priority=20)).priority == 20
        with pytest.raises(Unsupported) as caught:
            board.add("y", priority=8)
        assert "40 (HIGH)" in caught.value.hint

    def test_reading_takes_no_lock(self, golden: Place) -> None:
        board = golden.open("?timeout=0")
        with LockDirGuard(golden.lock):
            assert len(board.status()) == 4
            assert board.get("notes").id == "notes"
            assert board.reasons("notes")
            assert [found.severity for found in board.store.check()]  # type: ignore[attr-defined]
            assert board.store.rebuild(False)  # type: ignore[attr-defined]

    def test_a_new_file_and_one_that_went_are_seen(self, place: Place) -> None:
        board = place.open()
        board.add("x", id="02-x")
        place.write("01-first", "# First\n# Status\nTODO\n")
        assert [row["id"] for row in board.status()] == ["01-first", "02-x"]
        (place.tasks / "02-x.md").unlink()
        assert [row["id"] for row in board.status()] == ["01-first"]
        assert take(board).id == "01-first"

    def test_a_change_in_place_within_the_same_tick_and_size_is_seen(self, place: Place) -> None:
        board = place.open()
        board.add("x", id="t")
        for _ in range(50):
            place.say("t", "DONE")
            assert board.get("t").status is TaskStatus.COMPLETED
            place.say("t", "TODO")
            assert board.get("t").status is TaskStatus.PENDING

    def test_only_what_has_changed_is_parsed_again(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        for i in range(20):
            place.write(f"t{i}", "# T\n# Status\nTODO\n")
            os.utime(place.tasks / f"t{i}.md", (START, START))
        board = place.open()
        assert board.pending_count == 20
        parsed: list[str] = []
        parse = bilu_text.parse

        def counting(stem: str, data: bytes) -> bilu_text.TaskFile:
            parsed.append(stem)
            return parse(stem, data)

        monkeypatch.setattr(bilu_text, "parse", counting)
        place.write("t3", "# T\n# Status\nDONE\n")
        assert (board.pending_count, parsed) == (19, ["t3"])
        board.status()
        assert parsed == ["t3"]

    def test_a_name_that_no_task_can_have_is_not_on_the_board_but_is_found_by_check(self, place: Place) -> None:
        place.write("my task", "# T\n# Status\nTODO\n")
        place.write(".draft", "# T\n# Status\nTODO\n")
        (place.tasks / "folder.md").mkdir()
        board = place.open()
        assert board.status() == []
        found = board.store.check()  # type: ignore[attr-defined]
        assert [str(each) for each in found if each.severity == "error"] == [
            "board/tasks/my task.md: error: the file's name cannot be a task's id: use letters, digits, '.', '_' "
            "and '-' before .md"
        ]

    @pytest.mark.parametrize("data", [b"# T\n# Status\nTO\xffDO\n", b"# T\n\0\n"])
    def test_a_damaged_file_is_named_and_left_alone(self, place: Place, data: bytes) -> None:
        board = place.open()
        board.add("x", id="t")
        path = place.tasks / "bad.md"
        path.write_bytes(data)
        for attempt in (board.status, lambda: board.claim(ANN), lambda: board.add("y"), lambda: place.open().status()):
            with pytest.raises(BoardUnusable) as caught:
                attempt()
            assert str(path) in caught.value.message
            assert "line" in caught.value.message
        assert path.read_bytes() == data
        assert place.status("t") == "TODO"
        assert not place.lock.exists()
        assert any(each.severity == "error" for each in board.store.check())  # type: ignore[attr-defined]
        path.unlink()
        assert take(board).id == "t"

    def test_damaged_settings_are_named_too(self, place: Place) -> None:
        board = place.open()
        path = place.folder / "board" / "config.json"
        path.write_text("{")
        with pytest.raises(BoardUnusable) as caught:
            board.status()
        assert str(path) in caught.value.message


class TestText:
    @pytest.mark.parametrize(
        "text",
        [
            "one line",
            "title\n\nbelow",
            "two\nlines",
            "two\nlines\n\nand more",
            "t\n\nt\nagain",
            "t\n\nt",
            "t\n\n\nfar below",
            "t\n\n  indented",
            "t\n\n## Small heading\n- item",
            "# looks like a heading",
            "- looks like a list",
            "Status",
            "[]",
            "a\tb",
        ],
    )
    def test_what_is_added_reads_back_as_it_was_given(self, place: Place, text: str) -> None:
        board = place.open()
        task_id = board.add(text)
        assert place.open().get(task_id).description == text
        assert board.get(task_id).description == text
        assert differences(board, _replayed(board)) == [f"{task_id}.created_by: board None, replay {_actor(board)!r}"]

    @pytest.mark.parametrize(("given", "kept"), [("  x ", "x"), ("a\r\nb", "a\nb"), ("\n\nx\n\n", "x")])
    def test_blanks_around_it_and_line_ends_are_not_kept(self, place: Place, given: str, kept: str) -> None:
        board = place.open()
        task_id = board.add(given)
        assert board.get(task_id).description == kept == place.open().get(task_id).description

    def test_dividing_and_joining_are_each_others_reverse(self) -> None:
        rng = random.Random(5)
        for _ in range(3000):
            text = "".join(rng.choice("ab \n\n#-") for _ in range(rng.randrange(1, 12)))
            if not text.strip():
                continue
            title, below = divided(text)
            assert "\n" not in title
            assert divided(joined(title, below)) == (title, below)


def _replayed(board: TaskBoard) -> Any:
    from dibs.replay import replay

    return replay(board.changelog())


def _actor(board: TaskBoard) -> str:
    return next(event.worker for event in board.changelog() if event.action == "added_activity")


class TestHands:
    """Others edit the files; what these say counts."""

    def test_a_task_that_a_hand_took_is_held_by_somebody_and_does_not_expire(self, place: Place) -> None:
        place.write("t", "# T\n# Status\nIn progress\n")
        board = place.open()
        task = board.get("t")
        assert (task.status, task.assigned_to) == (TaskStatus.IN_PROGRESS, NOBODY)
        assert task.claimed_at == pytest.approx((place.tasks / "t.md").stat().st_mtime)
        place.clock.advance(10 * 365 * 86_400)
        assert board.recover() == []
        with pytest.raises(NotClaimable, match=NOBODY):
            board.claim(ANN, "t")
        assert board.release_agent_tasks(NOBODY) == ["t"]
        assert place.status("t") == "TODO"

    def test_a_claim_that_a_hand_put_back_is_over(self, place: Place) -> None:
        board = place.open()
        board.add("x", id="t")
        task = take(board, ANN)
        place.say("t", "TODO")
        assert board.get("t").status is TaskStatus.PENDING
        with pytest.raises(LeaseLost):
            task.complete("done")
        assert place.status("t") == "TODO"
        assert take(board, BEN).id == "t"

    def test_a_hand_that_takes_it_next_is_not_mistaken_for_the_holder_before(self, place: Place) -> None:
        board = place.open()
        board.add("x", id="t")
        take(board, ANN, lease=60)
        place.say("t", "TODO")
        board.add("other")  # any write to the board settles it
        place.say("t", "INPROGRESS")
        place.clock.advance(3600)
        assert board.recover() == []
        assert board.get("t").assigned_to == NOBODY == place.open().get("t").assigned_to

    def test_what_a_hand_finished_was_finished_by_its_holder(self, place: Place) -> None:
        board = place.open()
        board.add("x", id="t")
        board.add("y", ["t"], id="u")
        task = take(board, ANN)
        place.say("t", "DONE")
        assert (board.get("t").status, board.get("t").assigned_to) == (TaskStatus.COMPLETED, "ann")
        assert take(board, BEN).id == "u"
        task.complete("as I said")
        assert task.status is TaskStatus.COMPLETED

    def test_a_hand_may_edit_the_rest_of_a_file_that_is_claimed(self, place: Place) -> None:
        board = place.open()
        board.add("x", id="t")
        task = take(board, ANN)
        place.write("t", place.read("t").replace("# x\n", "# Better\n\nNotes on how it goes.\n"))
        assert (board.get("t").description, board.get("t").assigned_to) == ("Better", "ann")
        task.complete("done")
        assert "Notes on how it goes." in place.read("t")
        assert place.status("t") == "DONE"

    def test_a_backlog_task_waits_and_says_why_until_it_is_unblocked(self, place: Place) -> None:
        place.write("t", "# T\n# Status\nBACKLOG\n")
        board = place.open()
        assert board.claim(ANN) is None
        assert [reason.text for reason in board.reasons("t")] == [f"blocked by {NOBODY}: it is in the backlog"]
        board.block("t", "no money", worker=EVE)
        assert place.status("t") == "BLOCKED"
        board.unblock("t", blocker="b2", worker=EVE)
        assert place.status("t") == "BACKLOG"
        board.unblock("t", worker=EVE)
        assert place.status("t") == "TODO"
        assert take(board).id == "t"

    def test_a_blocked_file_has_a_blocker_and_the_reason_that_dibs_was_given(self, place: Place) -> None:
        place.write("t", "# T\n# Status\nBLOCKED\n")
        board = place.open()
        assert [reason.text for reason in board.reasons("t")] == [f"blocked by {NOBODY}: its file says BLOCKED"]
        board.unblock("t", "there is one", worker=EVE)
        board.block("t", "no password", worker=EVE)
        assert [reason.text for reason in place.open().reasons("t")] == ["blocked by eve: no password"]
        place.say("t", "TODO")
        assert take(board).id == "t"
        assert place.open().get("t").open_blockers == []

    def test_a_review_by_hand_is_accepted_or_rejected(self, place: Place) -> None:
        place.write("t", "# T\n# Status\nReview\n")
        place.write("u", "# U\n# Status\nReview\n")
        board = place.open()
        assert board.accept("t", worker=EVE).status is TaskStatus.COMPLETED
        assert "no tests" in (board.reject("u", "no tests", worker=EVE).result or "")
        assert (place.status("t"), place.status("u")) == ("DONE", "TODO")
        assert "no tests" in (place.open().get("u").result or "")

    def test_an_archived_task_is_completed_and_stays_archived(self, place: Place) -> None:
        place.write("t", "# T\n# Status\nArchived\n")
        place.write("u", "# U\n# Status\nTODO\n# depends_on\n- t\n")
        board = place.open()
        assert board.get("t").status is TaskStatus.COMPLETED
        assert take(board).id == "u"
        assert place.status("t") == "ARCHIVED"

    def test_losing_dibs_notes_loses_no_task_and_no_claim(self, place: Place) -> None:
        board = place.open()
        board.add("x", id="t")
        take(board, ANN)
        shutil.rmtree(place.claims.parent)
        for each in (board, place.open()):
            assert (each.get("t").status, each.get("t").assigned_to) == (TaskStatus.IN_PROGRESS, NOBODY)

    def test_notes_stay_small_and_claims_and_blockers_outlive_the_rest(self, place: Place) -> None:
        board = place.open()
        board.add_many([{"description": "x", "id": f"0{i}"} for i in range(3)])
        board.complete("00", "made it")
        board.block("01", "no password", worker=EVE)
        take(board, ANN, "02")
        board.add_many([{"description": "more"}] * 600)
        fresh = place.open()
        assert [reason.text for reason in fresh.reasons("01")] == ["blocked by eve: no password"]
        assert fresh.get("02").assigned_to == "ann"
        assert (fresh.get("00").status, fresh.get("00").result) == (TaskStatus.COMPLETED, None)
        assert "made it" in [event.details for event in fresh.changelog(task_id="00")]
        assert place.claims.read_text().count('"status"') == 501

    def test_notes_that_are_nonsense_are_passed_over(self, place: Place) -> None:
        board = place.open()
        board.add("x", id="t")
        take(board, ANN)
        sound = json.loads(place.claims.read_text())["claims"]["t"]
        strange: list[Any] = [{}, [], {"status": "in_progress", "created": "x"}]
        strange += [sound | {key: []} for key in ("created", "lease", "claimed", "expires", "worker")]
        blockers: list[Any] = [[], {"id": "b1"}, {"id": "b", "reason": "r", "raised_at": "x"}]
        strange += [sound | {"blockers": [each]} for each in blockers]
        for text in ("{", "[]", *(json.dumps({"claims": {"t": entry}}) for entry in strange)):
            place.claims.write_text(text)
            assert place.open().get("t").assigned_to == NOBODY


class TestLayouts:
    @pytest.mark.parametrize(
        ("folder", "storage"),
        [(".bilu", "storage"), ("src", "board/storage"), ("other", "storage")],
    )
    def test_the_lock_is_where_the_document_has_it(
        self, tmp_path: Path, clock: HandClock, folder: str, storage: str
    ) -> None:
        place = Place(tmp_path / folder, clock, storage)
        board = place.open("?timeout=0")
        board.add("x", id="t")
        assert place.claims.exists()
        assert {path.name for path in place.folder.rglob("claims.json")} == {"claims.json"}
        with LockDirGuard(place.lock), pytest.raises(Busy):
            board.claim(ANN)
        assert TaskBoard.open(f"bilu:{place.folder / 'board'}", clock=clock).get("t").id == "t"
        assert TaskBoard.open(f"bilu:{place.folder / 'board'}", clock=clock).url == f"bilu:{place.folder}"

    def test_elsewhere_the_storage_folder_that_is_there_counts(self, tmp_path: Path, clock: HandClock) -> None:
        (tmp_path / "x" / "board" / "storage").mkdir(parents=True)
        place = Place(tmp_path / "x", clock, "board/storage")
        place.open().add("x")
        assert place.claims.exists()

    def test_a_folder_without_tasks_is_no_board(self, tmp_path: Path) -> None:
        with pytest.raises(NoBoard) as caught:
            TaskBoard.open(f"bilu:{tmp_path}")
        assert "init" in caught.value.hint
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("query", ["?", "?timeout", "?timeout=soon", "?timeout=-1", "?timeout=nan", "?retries=3"])
    def test_a_url_that_makes_no_sense_is_refused(self, place: Place, query: str) -> None:
        with pytest.raises(Invalid, match="URL"):
            place.open(query)


class TestLock:
    def test_busy_names_the_lock_and_quotes_the_document(self, place: Place) -> None:
        board = place.open("?timeout=0")
        with LockDirGuard(place.lock), pytest.raises(Busy) as caught:
            board.add("x")
        assert caught.value.message == f"error: lock busy: {place.lock}"
        assert caught.value.hint.startswith(f"process {os.getpid()} (")
        assert caught.value.hint.endswith(f") has it, and is running; {HINT}")
        board.add("x")

    def test_a_hands_lock_without_a_pid_is_never_broken(self, place: Place) -> None:
        board = place.open("?timeout=0")
        place.lock.mkdir(parents=True)
        with pytest.raises(Busy):
            board.add("x")
        place.lock.rmdir()
        board.add("x")

    def test_the_lock_of_a_dead_process_is_broken_even_without_waiting(self, place: Place) -> None:
        board = place.open("?timeout=0")
        gone = subprocess.Popen([sys.executable, "-c", ""])
        gone.wait()
        place.lock.mkdir(parents=True)
        (place.lock / "pid").write_text(f"{gone.pid}\n")
        board.add("x")
        assert not place.lock.exists()

    def test_a_refused_verb_gives_the_lock_back(self, place: Place) -> None:
        board = place.open()
        with pytest.raises(Unsupported):
            board.add("x", steps=["one"])
        assert not place.lock.exists()

    def test_a_write_without_the_lock_is_noticed(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        board = place.open()
        board.add("x", id="t")
        encode = BiluStore._encode

        def meddling(store: BiluStore, tx: Any) -> dict[str, bytes | None]:
            made = encode(store, tx)
            place.write("t", "# Mine\n# Status\nTODO\n")
            return made

        monkeypatch.setattr(BiluStore, "_encode", meddling)
        with pytest.raises(Busy, match="somebody changed"):
            board.claim(ANN)
        monkeypatch.undo()
        assert place.read("t") == "# Mine\n# Status\nTODO\n"
        assert take(board).description == "Mine"


class Killed(BaseException):
    pass


def _die(*_: object) -> None:
    raise Killed


class TestCrashes:
    @pytest.mark.parametrize("written", [0, 1, 2, 3])
    def test_a_write_of_several_files_is_finished_by_the_next_writer(
        self, place: Place, monkeypatch: pytest.MonkeyPatch, written: int
    ) -> None:
        board = place.open()
        board.add_many([{"description": "x", "id": f"t{i}"} for i in range(3)])
        self.kill_after(written, monkeypatch)
        with pytest.raises(Killed):
            board.claim(ANN, n=3)
        monkeypatch.undo()
        begun = [place.status(f"t{i}") for i in range(3)]
        assert begun.count("INPROGRESS") == written
        after = place.open()
        after.tell("hello", worker=BEN)
        taken = 3 if written else 0
        assert [place.status(f"t{i}") for i in range(3)] == ["INPROGRESS"] * taken + ["TODO"] * (3 - taken)
        assert [task.id for task in after.held_by(ANN)] == [f"t{i}" for i in range(taken)]
        assert [event.action for event in after.changelog()].count("claimed_activity") == taken
        assert [fields(after.get(f"t{i}")) for i in range(3)] == [fields(board.get(f"t{i}")) for i in range(3)]

    def kill_after(self, written: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """The process dies when so many task files are in place."""
        replace, left = fs.replace_file, [written]

        def dying(path: str, *args: Any, **options: Any) -> None:
            if path.endswith(".md"):
                if not left[0]:
                    raise Killed
                left[0] -= 1
            replace(path, *args, **options)

        monkeypatch.setattr(fs, "replace_file", dying)
        if written == 3:
            monkeypatch.setattr("dibs.dialects.eventlog.EventLog.append", _die)

    @pytest.mark.parametrize("verb", ["complete", "release", "block"])
    def test_an_end_that_was_not_written_leaves_the_claim_its_holder_and_its_lease(
        self, place: Place, monkeypatch: pytest.MonkeyPatch, verb: str
    ) -> None:
        board = place.open()
        board.add("x", id="t")
        task = take(board, ANN, lease=60)
        self.kill_after(0, monkeypatch)
        with pytest.raises(Killed):
            getattr(board, verb)("t", *["why"] * (verb == "block"), worker=ANN)
        monkeypatch.undo()
        after = place.open()
        after.add("y")
        assert (after.get("t").assigned_to, after.get("t").token) == ("ann", task.token)
        assert fields(after.get("t")) == fields(place.open().get("t"))
        place.clock.advance(61)
        assert after.recover() == ["t"]

    def test_so_is_the_adding_of_several(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        board = place.open()
        self.kill_after(1, monkeypatch)
        with pytest.raises(Killed):
            board.add_many([{"description": "x", "id": "t0"}, {"description": "y", "id": "t1", "depends_on": ["t0"]}])
        monkeypatch.undo()
        after = place.open()
        after.add("z", id="t2")
        assert [row["id"] for row in after.status()] == ["t0", "t1", "t2"] == [row["id"] for row in board.status()]


class TestDerived:
    def test_check_says_that_the_index_is_stale_and_rebuild_renews_it(self, golden: Place) -> None:
        board = golden.open()
        store: Any = board.store
        assert not any("stale" in found.text for found in store.check())
        board.complete("notes")
        stale = [found.file for found in store.check() if "stale" in found.text]
        assert stale == ["board/default.json", "board/records.tsv"]
        printed = store.rebuild(False)
        assert [found.file for found in store.check() if "stale" in found.text] == stale
        written = store.rebuild(True)
        assert written == [str(golden.folder / path) for path in stale]
        assert Path(written[0]).read_text() == printed
        assert Path(written[1]).read_text().split("\n")[3].startswith("notes\tDONE\t5\tMEDIUM\t")
        assert not any("stale" in found.text for found in store.check())
        assert store.rebuild(True) == []

    def test_rebuilding_waits_for_the_lock_and_recomputes_inside_it(
        self, golden: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store: Any = golden.open("?timeout=0").store
        with LockDirGuard(golden.lock), pytest.raises(Busy):
            store.rebuild(True)
        acquire = LockDirGuard.acquire

        def late(guard: LockDirGuard, *args: Any) -> None:
            golden.say("notes", "DONE")
            acquire(guard, *args)

        monkeypatch.setattr(LockDirGuard, "acquire", late)
        (index, _) = store.rebuild(True)
        assert Path(index).read_text().count('"DONE"') == 2
        assert not golden.lock.exists()

    def test_a_damaged_file_stops_it(self, golden: Place) -> None:
        store: Any = golden.open().store
        before = (golden.folder / "board" / "default.json").read_bytes()
        (golden.tasks / "bad.md").write_bytes(b"\xff")
        for write in (False, True):
            with pytest.raises(BoardUnusable):
                store.rebuild(write)
        assert (golden.folder / "board" / "default.json").read_bytes() == before
        assert not golden.lock.exists()


@pytest.mark.parametrize("seed", range(5))
def test_whoever_opens_the_board_anew_sees_what_the_writer_sees(place: Place, seed: int) -> None:
    """Any verbs in any order, by two open boards, with hands among them: all three see the same rows."""
    rng = random.Random(seed)
    boards = [place.open(), place.open()]
    ids: list[str] = []
    for _ in range(150):
        board = rng.choice(boards)
        who = rng.choice([ANN, BEN, EVE])
        task_id = rng.choice(ids) if ids else "none"
        try:
            _one_step(rng, place, board, who, task_id, ids)
        except DibsError:
            pass
        place.clock.advance(rng.choice([0, 1, 700]))
        wanted = _rows(place.open())
        for each in boards:
            seen = _rows(each)
            assert seen.keys() == wanted.keys()
            assert [(key, seen[key], wanted[key]) for key in seen if seen[key] != wanted[key]] == []
    statuses = {task.status for task in boards[0].tasks(limit=1000)[0]}
    assert len(statuses) > 3


def _rows(board: TaskBoard) -> dict[str, object]:
    return {
        f"{task.id}.{name}": value
        for task in _all(board)
        for name, value in (fields(task) | {"unmet": task.unmet, "seq": task.seq}).items()
    }


def _all(board: TaskBoard) -> list[BoardTask]:
    with board.store.read() as tx:
        return list(tx.all_tasks())


def _one_step(rng: random.Random, place: Place, board: TaskBoard, who: Any, task_id: str, ids: list[str]) -> None:
    verb = rng.choice(["add", "claim", "claim", "claim", "complete", "release", "block", "unblock", "cancel", "retry",
                       "depend", "undepend", "hand", "hand", "recover", "accept", "reject", "id"])  # fmt: skip
    match verb:
        case "add" if len(ids) < 25:
            ids.append(board.add(f"task {len(ids)}", rng.sample(ids, min(len(ids), rng.randrange(2))), worker=who))
        case "id" if len(ids) < 25:
            ids.append(board.add("named", id=f"{rng.choice('abc')}{len(ids)}", labels=["x"], worker=who))
        case "claim":
            board.claim(who, lease=rng.choice([100, 5000]))
        case "complete":
            board.complete(task_id, rng.choice([None, "done"]), worker=who)
        case "release":
            board.release(task_id, worker=who)
        case "block":
            board.block(task_id, "why", worker=who)
        case "unblock" | "cancel" | "retry" | "accept":
            getattr(board, verb)(task_id, worker=who)
        case "reject":
            board.reject(task_id, "no", worker=who)
        case "depend" | "undepend":
            getattr(board, verb)(task_id, [rng.choice(ids or ["none"])], worker=who)
        case "recover":
            board.recover()
        case "hand" if ids:
            statuses = ["TODO", "INPROGRESS", "DONE", "BLOCKED", "BACKLOG", "REVIEW", "ARCHIVED", "CANCELLED"]
            place.say(task_id, rng.choice(statuses))
