"""`dibs doctor` on boards in dialects' own files: it tells everything, waits for nobody and changes nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dibs import TaskBoard, Worker
from dibs.guards import FlockGuard, LockDirGuard, LockFileGuard
from tests.cli.shell import Shell, environment
from tests.cli.test_copy import content, furnish

CLAIM_AND_DIE = """
import os, sys
from dibs import TaskBoard
from dibs.worker import of_process
TaskBoard.open(sys.argv[1]).claim(of_process("mayfly"), sys.argv[2])
os._exit(0)
"""
KINDS = {"taskboard": "taskboard.json", "workflow": ".workflow/board.json"}


@pytest.fixture
def place(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def part(document: Any, kind: str) -> Any:
    (found,) = (part for part in document["dialect"]["parts"] if part["kind"] == kind)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_sound_board_is_described_and_not_touched(place: Shell, kind: str) -> None:
    folder = (place.folder / KINDS[kind]).parent
    furnish(f"{kind}:{folder}")
    before = content(place.folder)
    document = place.ok("doctor", "--json").json
    assert document["ok"]
    assert document["board"]["url"] == f"{kind}:{folder}"
    facts = document["dialect"]
    assert (facts["name"], facts["folder"], facts["errors"]) == (kind, str(folder), 0)
    assert part(document, "file")["path"] == str(place.folder / KINDS[kind])
    assert part(document, "guard")["state"] == "free"
    assert "knows 1 live" in part(document, "notes")["state"]
    assert sum(document["counts"].values()) == 3
    result = place.ok("doctor")
    assert "all is well" in result.out
    assert f"dialect    {kind}, document" in result.out
    assert "changelog  up to " in result.out
    assert content(place.folder) == before


def test_a_folder_with_nothing_but_the_documents_file_gets_no_other(place: Shell) -> None:
    (place.folder / "taskboard.json").write_text('{"tasks": []}')
    result = place.ok("doctor")
    assert "notes      .dibs/claims.json: not there" in result.out
    assert "files      taskboard.json (13 bytes)" in result.out
    assert [path.name for path in place.folder.iterdir()] == ["taskboard.json"]


def test_a_hand_made_claim_has_no_end_and_no_process(place: Shell) -> None:
    claim = {"id": "a", "description": "x", "status": "in_progress", "assigned_to": "zoe", "claimed_at": 1700000000.0}
    (place.folder / "taskboard.json").write_text(json.dumps({"tasks": [claim]}))
    (found,) = place.ok("doctor", "--json").json["claims"]
    assert (found["holder"], found["lease_left"], found["process"]) == ("zoe", None, "unknown")
    out = place.ok("doctor").out
    assert "zoe, since" in out
    assert "no end" in out
    said = " ".join(out.split())
    assert "it has no end: zoe must give it back; if it is gone: dibs recover --worker zoe" in said
    place.ok("recover", "--worker", "zoe")
    assert "claims     none" in place.ok("doctor").out


def test_the_claim_of_a_dead_process_is_found(place: Shell) -> None:
    url = f"taskboard:{place.folder}"
    with TaskBoard.open(url, create=True) as board:
        task_id = board.add("left behind")
    subprocess.run([sys.executable, "-c", CLAIM_AND_DIE, url, task_id], check=True, timeout=60, env=environment())
    result = place("doctor", "--json")
    assert result.code == 1
    (claim,) = result.json["claims"]
    assert (claim["holder"], claim["process"]) == ("mayfly", "dead")
    (finding,) = result.json["findings"]
    assert finding["code"] == "dead_holder"
    assert "the next claim gives it back" in finding["hint"]


def test_who_holds_the_flock_is_told_without_waiting_for_it(place: Shell) -> None:
    furnish(f"taskboard:{place.folder}")
    with FlockGuard(place.folder / "taskboard.lock"):
        document = place.ok("doctor", "--json").json
    holder = part(document, "guard")["holder"]
    assert holder["state"] == "alive"
    if os.path.exists("/proc/locks"):
        assert holder["pid"] == os.getpid()
    assert len(document["claims"]) == 1


def test_who_holds_the_lock_file_is_told_without_waiting_for_it(place: Shell) -> None:
    folder = place.folder / ".workflow"
    furnish(f"workflow:{folder}")
    with LockFileGuard(str(folder / "board.lock"), "worker-7"):
        started = time.monotonic()
        result = place.ok("doctor", "--json")
        assert time.monotonic() - started < 9  # readers wait ten seconds
    holder = part(result.json, "guard")["holder"]
    assert (holder["name"], holder["state"]) == ("worker-7", "alive")
    assert "stale after" in holder["why"]
    assert holder["age"] < 60


def test_a_guard_that_was_left_behind_is_a_finding_and_stays(place: Shell) -> None:
    folder = place.folder / ".workflow"
    furnish(f"workflow:{folder}")
    lock = folder / "board.lock"
    lock.write_text('{"agent": "worker-7", "ts": "2020-01-01T00:00:00Z"}')
    result = place("doctor")
    assert result.code == 1
    assert "board.lock was left behind by worker-7" in result.out
    assert "nothing is lost" in result.out
    assert lock.exists()


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_told_once_with_its_line_and_left_alone(place: Shell, kind: str) -> None:
    path = place.folder / KINDS[kind]
    furnish(f"{kind}:{path.parent}")
    lines = path.read_text().splitlines(keepends=True)
    lines[2] = "!" + lines[2]
    path.write_text("".join(lines))
    before = content(place.folder)
    result = place("doctor", "--json")
    assert result.code == 1
    (finding,) = result.json["findings"]
    assert finding["code"] == "damaged"
    assert finding["message"].startswith(f"{path.name}, line 3: ")
    assert "dibs check" in finding["hint"]
    assert "version control" in finding["hint"]
    assert place("doctor").code == 1
    assert content(place.folder) == before


@pytest.mark.parametrize("spoilt", [b"{", b"[]", b"\xff\xfe", b'{"claims": 3}'])
def test_a_damaged_companion_is_told_and_no_claim_is_lost(place: Shell, spoilt: bytes) -> None:
    furnish(f"taskboard:{place.folder}")
    (place.folder / ".dibs" / "claims.json").write_bytes(spoilt)
    document = place.ok("doctor", "--json").json
    assert "damaged" in part(document, "notes")["state"]
    assert [claim["holder"] for claim in document["claims"]] == ["ann"]


def test_a_write_that_was_interrupted_is_told(place: Shell) -> None:
    furnish(f"taskboard:{place.folder}")
    log = place.folder / ".dibs" / "changelog.log"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    document = place.ok("doctor", "--json").json
    assert "was interrupted" in part(document, "notes")["state"]


def test_where_no_board_is_found_boards_near_by_are_listed(place: Shell) -> None:
    TaskBoard(state_dir=place.folder / "tools" / "state").add("x")
    (place.folder / "repo" / ".git").mkdir(parents=True)
    (place.folder / "repo" / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    result = place("doctor", "--json")
    assert result.code == 1
    url = f"taskboard:{place.folder}/tools/state"
    assert result.json["near"] == [url]
    hint = result.json["findings"][0]["hint"]
    assert "dibs init" in hint
    assert hint.count("dibs --board taskboard:") == 1
    assert "near       taskboard:" in place("doctor").out
    TaskBoard(state_dir=place.folder).add("above")
    inside = place("doctor", "--json", cwd=place.folder / "repo")  # the work tree's root stops the search
    assert inside.json["near"] == [f"taskboard:{place.folder}"]


def test_a_claim_by_hand_wins_over_an_older_note_of_dibs(place: Shell) -> None:
    with TaskBoard.open(f"taskboard:{place.folder}", create=True) as board:
        board.add("x")
        board.claim(Worker("ann"))
    path = place.folder / "taskboard.json"
    path.write_text(path.read_text().replace('"ann"', '"zoe"'))
    (claim,) = place.ok("doctor", "--json").json["claims"]
    assert claim["holder"] == "zoe"


def test_the_holder_of_a_lock_directory_is_told_with_its_process(place: Shell) -> None:
    folder = place.folder / ".bilu"
    furnish(f"bilu:{folder}")
    (guard,) = (p for p in place.ok("doctor", "--json").json["dialect"]["parts"] if p["kind"] == "guard")
    with LockDirGuard(guard["path"], "rebuild"):
        holder = part(place.ok("doctor", "--json").json, "guard")["holder"]
        assert (holder["pid"], holder["state"]) == (os.getpid(), "alive")
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    os.makedirs(guard["path"])
    Path(guard["path"], "pid").write_text(f"{gone.pid}\n")
    result = place("doctor", "--json")
    assert result.code == 1
    assert part(result.json, "guard")["holder"]["state"] == "dead"
    assert [finding["code"] for finding in result.json["findings"]] == ["dead_guard"]
    assert Path(guard["path"], "pid").exists()


# -- guards that no rule ever removes


def stuck(shell: Shell) -> Any:
    """The one finding, after a look that was told twice, in JSON and in words, and left everything as it was."""
    before = content(shell.folder)
    result = shell("doctor", "--json")
    assert result.code == 1
    (finding,) = result.json["findings"]
    assert finding["code"] == "stuck_guard"
    assert "ask who made it" in finding["hint"]
    assert "keeps everybody from writing, and nothing removes it" in finding["message"]
    text = shell("doctor")
    assert text.code == 1
    assert "all is well" not in text.out
    assert content(shell.folder) == before
    return finding


@pytest.mark.parametrize("pid", [None, "", "soon"])
def test_a_lock_directory_that_names_no_process_is_a_finding(place: Shell, pid: str | None) -> None:
    folder = place.folder / ".bilu"
    furnish(f"bilu:{folder}")
    (folder / "storage" / "lock").mkdir(parents=True)
    if pid is not None:
        (folder / "storage" / "lock" / "pid").write_text(pid)
    finding = stuck(place)
    assert finding["message"].startswith("storage/lock keeps")
    assert "it names no process" in finding["message"]


def test_a_lock_directory_that_a_process_has_had_for_hours_is_a_finding(place: Shell) -> None:
    folder = place.folder / ".bilu"
    furnish(f"bilu:{folder}")
    lock = folder / "storage" / "lock"
    lock.mkdir(parents=True)
    (lock / "pid").write_text(str(os.getpid()))
    (lock / "ts").write_text(str(int(time.time()) - 7200))
    assert "may be another process" in stuck(place)["message"]
    (lock / "ts").write_text(str(int(time.time())))
    place.ok("doctor")


def test_a_lock_file_from_the_future_is_a_finding_and_has_no_age(place: Shell) -> None:
    folder = place.folder / ".workflow"
    furnish(f"workflow:{folder}")
    (folder / "board.lock").write_text('{"agent": "worker-7", "ts": "2999-01-01T00:00:00Z"}')
    finding = stuck(place)
    assert finding["message"].startswith("board.lock keeps")
    assert "in the future, and only its age would end it" in finding["message"]
    out = " ".join(place("doctor").out.split())
    assert "held by worker-7, alive: its ts lies" in out


@pytest.fixture
def item(place: Shell) -> Path:
    """A work item of a board of document 001, which dibs finds from its folder."""
    place.ok("--board", f"workitems:{place.folder}", "init")
    (found,) = place.folder.glob("WI-001*")
    return found


def test_the_lock_of_a_work_item_that_ends_in_years_is_a_finding(place: Shell, item: Path) -> None:
    lock = item / "locks" / "WI-001.lock"
    lock.write_text('{"holder": "zoe", "acquired": "2026-01-01T00:00:00Z", "expires": "2999-01-01T00:00:00Z"}')
    assert "it ends only in" in stuck(place)["message"]


def test_the_lock_of_a_work_item_that_nobody_can_read_is_a_finding(place: Shell, item: Path) -> None:
    (item / "locks" / "WI-001.lock").symlink_to("elsewhere")
    assert "it cannot be read" in stuck(place)["message"]


def test_an_old_empty_lock_of_a_work_item_is_not_called_well(place: Shell, item: Path) -> None:
    lock = item / "locks" / "WI-001.lock"
    lock.touch()
    os.utime(lock, (1_700_000_000, 1_700_000_000))
    result = place("doctor", "--json")
    assert result.code == 1
    (finding,) = result.json["findings"]
    assert "WI-001.lock" in finding["message"]


def test_two_guards_of_one_board_are_told_apart(place: Shell, item: Path) -> None:
    out = " ".join(place.ok("doctor").out.split())
    assert "guard .dibs/guard.lock (among dibs' own workers): nobody holds it" in out
    assert f"guard {item.name}/locks/WI-001.lock (among all who write): nobody holds it" in out


def test_one_file_is_not_called_files(place: Shell) -> None:
    folder = place.folder / ".bilu"
    with TaskBoard.open(f"bilu:{folder}", create=True) as board:
        board.add("x")
    assert "board/tasks (1 file)" in place.ok("doctor").out
