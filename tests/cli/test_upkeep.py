"""`dibs recover`, `export`, `import` and `doctor`, as processes, on boards that are well and on files that are not."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

import dibs
from dibs import TaskBoard, Worker

ANN = Worker("ann", session="s1")
BEN = Worker("ben", "human", session="s2")
GONE = Worker("gone", session="s3")

CLAIM_AND_DIE = """
import os, sys
from dibs import TaskBoard
from dibs.worker import of_process
board = TaskBoard.open(sys.argv[1])
board.claim(of_process("mayfly"), sys.argv[2])
if len(sys.argv) > 3:
    board.lock(sys.argv[3:], of_process("mayfly"))
os._exit(0)
"""


def call(folder: Path, *words: str, stdin: str = "", **environ: str) -> tuple[int, str, str]:
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("DIBS_", "CLAUDE", "CODEX", "GEMINI"))}
    plain |= {"PYTHONPATH": str(Path(dibs.__file__).parents[1]), "LOGNAME": "eve"} | environ
    done = subprocess.run(
        [sys.executable, "-m", "dibs", *words],
        cwd=folder,
        env=plain,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


def asked(folder: Path, *words: str) -> tuple[int, Any]:
    code, out, err = call(folder, "--json", *words)
    return code, json.loads(out or err)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with open_board(tmp_path):
        pass
    return tmp_path


def open_board(folder: Path, name: str = "board.db") -> TaskBoard:
    path = folder / ".dibs" / name
    return TaskBoard.open(f"sqlite:{path}", create=True, durability="normal", worker=BEN)


def die_holding(board: TaskBoard, task_id: str, *locks: str) -> None:
    environ = os.environ | {"PYTHONPATH": str(Path(dibs.__file__).parents[1])}
    subprocess.run(
        [sys.executable, "-c", CLAIM_AND_DIE, board.url, task_id, *locks], check=True, timeout=60, env=environ
    )


# -- recover


def test_recover_gives_back_what_the_dead_held_and_says_why(place: Path) -> None:
    with open_board(place) as board:
        board.add("left behind", id="left")
        board.add("in good hands", id="held")
        board.claim(ANN, "held")
        die_holding(board, "left", "docs/a.md")
        code, out, _ = call(place, "recover")
        assert code == 0
        assert "left  pending again: left behind" in out
        assert "process has died (held by mayfly)" in out
        assert "docs/a.md  no longer locked" in out
        assert (board.get("left").status, board.get("held").status) == ("pending", "in_progress")


def test_recover_under_json_lists_the_tasks_and_the_locks(place: Path) -> None:
    with open_board(place) as board:
        board.add("left behind", id="left")
        die_holding(board, "left", "docs/a.md")
    code, document = asked(place, "recover")
    assert code == 0
    assert [task["id"] for task in document["tasks"]] == ["left"]
    assert "process has died" in document["tasks"][0]["why"]
    assert document["locks"] == ["docs/a.md"]


def test_recover_without_anything_to_recover_is_fine(place: Path) -> None:
    code, out, _ = call(place, "recover")
    assert code == 0
    assert "nothing to recover" in out


def test_recover_by_name_gives_back_everything_of_a_worker_that_cannot_be_proved_dead(place: Path) -> None:
    with open_board(place) as board:
        board.add("x", id="x")
        board.claim(GONE, "x")
        board.lock(["docs/b.md"], GONE)
        code, out, _ = call(place, "--as", "lead", "recover", "--worker", "gone")
        assert code == 0
        assert "given back: 1 task, 1 lock" in out
        *_, last = board.changelog(task_id="x")
        assert (last.worker, last.details) == ("lead", "recovered: gone is gone")


def test_recover_counts_the_locks_that_went_with_their_tasks(place: Path) -> None:
    with open_board(place) as board:
        board.add("x", id="x", paths=["src/a.py", "src/b.py"])
        board.add("y", id="y", paths=["src/c.py"])
        board.claim(GONE, "x")
        board.lock(["docs/b.md"], GONE)
        board.claim(ANN, "y")
        code, out, _ = call(place, "recover", "--worker", "gone")
        assert code == 0
        assert "given back: 1 task, 3 locks" in out
        assert "src/b.py  no longer locked" in out
        assert [lock.pattern for lock in board.locks()] == ["src/c.py"]
    _, document = asked(place, "recover", "--task", "y")
    assert document["locks"] == ["src/c.py"]


def test_recover_by_name_refuses_while_the_process_is_alive(place: Path) -> None:
    with open_board(place) as board:
        board.add("x", id="x")
        board.claim("alive", "x")  # a worker that lives as long as this test
        code, _, err = call(place, "recover", "--worker", "alive")
        assert code == 1
        assert f"its process {os.getpid()} is running" in err
        assert board.get("x").status == "in_progress"


# -- export and import


def furnish(board: TaskBoard) -> None:
    """A bit of everything that a board can hold."""
    board.add(
        "größer als ☀ and \x1b[31mred\x1b[0m \u202e", id="uni", labels=["früh", "später"], paths=["src/**", "docs/ä.md"]
    )
    board.add("with steps", id="steps", steps=["eins", "zwei", "drei"], depends_on=["uni"], priority=-7)
    board.add("blocked", id="blocked", max_attempts=2, reserved="human")
    board.add("reviewed", id="reviewed", review=True, parent="blocked")
    board.add("by key", request_key="add-1", worker=ANN)
    board.block("blocked", "waits for a decision", worker=BEN)
    board.block("blocked", "and another", worker=ANN)
    board.unblock("blocked", "decided", worker=BEN)
    held = board.claim(ANN, "uni", lease=1234.5678, request_key="claim-1")
    assert held is not None
    handed_in = board.claim(ANN, "reviewed")
    assert handed_in is not None
    handed_in.complete("bitte prüfen")
    board.add("given up", id="given-up")
    given_up = board.claim(ANN, "given-up")
    assert given_up is not None
    given_up.fail("geht nicht")
    board.add("dropped", id="dropped")
    board.cancel("dropped", "no longer", worker=BEN)
    board.add("stepping", id="stepping", steps=["a", "b"])
    board.claim(BEN, "stepping")
    board.step("stepping", "start", worker=BEN)
    board.step("stepping", "done", "fertig", worker=BEN)
    board.lock(["lib/*.py", "README.md"], ANN, shared=True)
    board.tell("hallo ☎", "ben", worker=ANN)
    board.tell("to all\nof you", worker=BEN)
    board.inbox(BEN)


def test_an_export_that_is_imported_and_exported_again_is_the_same_to_the_byte(place: Path) -> None:
    with open_board(place) as board:
        furnish(board)
    assert call(place, "export", "one.jsonl")[0] == 0
    assert call(place, "--board", "sqlite:second/board.db", "import", "one.jsonl")[0] == 0
    assert call(place, "--board", "sqlite:second/board.db", "export", "two.jsonl")[0] == 0
    assert (place / "one.jsonl").read_bytes() == (place / "two.jsonl").read_bytes()
    assert call(place, "--board", "sqlite:second/board.db", "doctor")[0] == 0


def test_a_restored_board_goes_on_with_larger_tokens_and_the_same_memory(place: Path) -> None:
    with open_board(place) as board:
        furnish(board)
        held = board.get("uni")
        keyed = board.add("by key", request_key="add-1", worker=ANN)
        last = max(event.seq for event in board.changelog())
    call(place, "export", "one.jsonl")
    call(place, "--board", "sqlite:second/board.db", "import", "one.jsonl")
    with TaskBoard.open(f"sqlite:{place / 'second' / 'board.db'}", durability="normal") as restored:
        assert restored.add("by key", request_key="add-1", worker=ANN) == keyed
        assert restored.claim(ANN, "uni", request_key="claim-1") == held
        with pytest.raises(dibs.Busy):
            restored.lock(["src/x.py"], BEN)
        restored.complete("uni", "ok", token=held.token)
        claimed = restored.claim(ANN, "steps")
        assert claimed is not None
        assert claimed.token is not None
        assert claimed.token > last


def test_export_to_stdout_can_be_piped_into_import(place: Path) -> None:
    with open_board(place) as board:
        furnish(board)
    code, out, _ = call(place, "export")
    assert code == 0
    code, document_text, _ = call(place, "--json", "--board", "new.db", "import", "-", stdin=out)
    assert code == 0
    document = json.loads(document_text)
    assert (document["created"], document["tasks"]) == (True, out.count('\n{"task":'))
    assert call(place, "--board", "new.db", "export")[1] == out


def test_import_makes_the_board_of_the_folder(tmp_path: Path) -> None:
    with open_board(tmp_path / "from") as board:
        furnish(board)
    call(tmp_path / "from", "export", "../board.jsonl")
    (tmp_path / "to").mkdir()
    code, out, _ = call(tmp_path / "to", "import", "../board.jsonl")
    assert code == 0
    assert "into the new board" in out
    assert (tmp_path / "to" / ".dibs" / "board.db").exists()
    assert (tmp_path / "to" / ".dibs" / ".gitignore").exists()


def test_import_into_a_board_that_was_only_just_made_is_fine(place: Path) -> None:
    with open_board(place, "other.db") as board:
        furnish(board)
    code, exported, _ = call(place, "--board", ".dibs/other.db", "export")
    assert code == 0
    assert call(place, "import", "-", stdin=exported)[0] == 0
    first, second, *rest = exported.splitlines()
    again = call(place, "export")[1].splitlines()
    created = next(line for line in rest if '"board created"' in line)
    assert [line for line in again if '"board created"' not in line] == [
        line for line in (first, second, *rest) if line != created
    ]
    assert call(place, "doctor")[0] == 0


def test_export_leaves_an_existing_file_alone_unless_forced(place: Path) -> None:
    target = place / "precious.jsonl"
    target.write_text("precious")
    code, _, err = call(place, "export", "precious.jsonl")
    assert code == 1
    assert "exists already" in err
    assert target.read_text() == "precious"
    assert call(place, "export", "precious.jsonl", "--force")[0] == 0
    assert json.loads(target.read_text().splitlines()[0])["dibs"] == 1
    assert sorted(path.name for path in place.iterdir()) == [".dibs", "precious.jsonl"]  # no draft is left


@pytest.mark.parametrize("target", [".dibs/board.db", ".dibs/../.dibs/board.db-lock"])
def test_export_never_writes_over_the_board_itself(place: Path, target: str) -> None:
    before = (place / target).read_bytes()
    code, _, err = call(place, "export", target, "--force")
    assert code == 1
    assert "belongs to the board itself" in err
    assert (place / target).read_bytes() == before


def test_export_into_a_folder_that_is_not_there_says_so(place: Path) -> None:
    code, _, err = call(place, "export", "nowhere/board.jsonl")
    assert code == 1
    assert "cannot write nowhere/board.jsonl" in err


def test_import_into_a_board_with_tasks_is_refused(place: Path) -> None:
    call(place, "export", "one.jsonl")
    with open_board(place) as board:
        board.add("mine", id="mine")
    code, _, err = call(place, "import", "one.jsonl")
    assert code == 1
    assert "nothing was imported" in err
    assert "does not exist yet" in err
    with open_board(place) as board:
        assert board.get("mine").description == "mine"


def cut_short(text: str) -> str:
    return text[: len(text) // 2]


def without_the_end(text: str) -> str:
    return "".join(text.splitlines(keepends=True)[:-1])


def with_a_line_missing(text: str) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(lines[:3] + lines[4:])


def something_else(text: str) -> str:
    return "hello\nworld\n"


def nothing(text: str) -> str:
    return ""


@pytest.mark.parametrize("spoil", [cut_short, without_the_end, with_a_line_missing, something_else, nothing])
def test_a_file_that_is_no_whole_export_is_refused_and_leaves_nothing_behind(place: Path, spoil: Any) -> None:
    with open_board(place) as board:
        furnish(board)
    spoilt = spoil(call(place, "export")[1])
    code, _, err = call(place, "--board", "new.db", "import", "-", stdin=spoilt)
    assert code == 1
    assert "nothing was imported" in err
    assert not (place / "new.db").exists()


def test_import_of_bytes_that_are_no_text_is_refused(place: Path) -> None:
    (place / "noise").write_bytes(bytes(range(256)))
    code, _, err = call(place, "import", "noise")
    assert code == 1
    assert "not text" in err


def test_import_of_a_file_that_is_not_there_says_so(place: Path) -> None:
    code, _, err = call(place, "import", "nowhere.jsonl")
    assert code == 1
    assert "cannot read nowhere.jsonl" in err


# -- doctor


def test_a_sound_board_has_no_findings(place: Path) -> None:
    with open_board(place) as board:
        furnish(board)
        code, out, _ = call(place, "doctor")
    assert code == 0
    assert "all is well" in out
    assert "replaying it gives the board: ok" in out
    assert max(map(len, out.splitlines())) <= 80


def test_doctor_tells_who_holds_what_and_whether_they_live(place: Path) -> None:
    with open_board(place) as board:
        for name in ("mine", "far", "left", "plain"):
            board.add(name, id=name, paths=[f"src/{name}/**"])
        board.claim("alive", "mine")
        board.claim(Worker("far", session="f", host="elsewhere", pid=7, started="1", boot="b"), "far")
        board.claim(ANN, "plain")
        die_holding(board, "left", "docs/a.md")
        code, document = asked(place, "doctor")
        before = [event.seq for event in board.changelog()]
        assert code == 1
        claims = {claim["task"]: claim for claim in document["claims"]}
        assert {name: claim["process"] for name, claim in claims.items()} == {
            "mine": "alive",
            "far": "unknown",
            "left": "dead",
            "plain": "unknown",
        }
        assert "another host, elsewhere" in claims["far"]["process_why"]
        assert 3500 < claims["plain"]["lease_left"] <= 3600
        assert {lock["pattern"]: lock["process"] for lock in document["locks"]}["docs/a.md"] == "dead"
        assert [finding["code"] for finding in document["findings"]] == ["dead_holder", "dead_holder"]
        assert all("dibs recover" in finding["hint"] for finding in document["findings"])
        assert [event.seq for event in board.changelog()] == before  # looking changes nothing
        assert call(place, "recover")[0] == 0
        assert asked(place, "doctor")[0] == 0


def test_doctor_says_which_board_and_how_it_was_found(place: Path) -> None:
    url = f"sqlite:{place / '.dibs' / 'board.db'}"
    assert asked(place, "doctor")[1]["board"] == {"url": url, "found": f"found from {place}"}
    assert asked(place, "--board", ".dibs/board.db", "doctor")[1]["board"] == {"url": url, "found": "named by --board"}
    code, out, _ = call(place.parent, "--json", "doctor", DIBS_BOARD=url)
    assert json.loads(out)["board"]["found"] == "named by DIBS_BOARD"
    assert code == 0


def test_doctor_says_who_dibs_thinks_you_are_and_why(place: Path) -> None:
    you = json.loads(call(place, "--json", "--as", "worker-1", "doctor", CODEX_THREAD_ID="thread-9")[1])["you"]
    assert you == {
        "name": "worker-1",
        "name_from": "--as",
        "kind": "agent",
        "kind_from": "default",
        "role": "worker",
        "session": "thread-9",
        "session_from": "CODEX_THREAD_ID",
    }
    you = json.loads(call(place, "--json", "--human", "doctor", DIBS_AGENT="zoe", DIBS_SESSION="s")[1])["you"]
    assert (you["name"], you["name_from"], you["kind_from"], you["session_from"]) == (
        "zoe",
        "DIBS_AGENT",
        "--human",
        "DIBS_SESSION",
    )


def test_a_name_that_no_worker_can_have_is_a_finding(place: Path) -> None:
    code, document = asked(place, "--as", " blanks ", "doctor")
    assert code == 1
    assert document["findings"][0]["code"] == "invalid"


def test_without_a_board_doctor_says_so_and_still_tells_the_rest(tmp_path: Path) -> None:
    code, document = asked(tmp_path, "doctor")
    assert code == 1
    (finding,) = document["findings"]
    assert finding["code"] == "no_board"
    assert finding["hint"].startswith("make one with: dibs init; if it is somewhere else")
    assert document["versions"]["sqlite"] == apsw.sqlite_lib_version()
    code, out, _ = call(tmp_path, "doctor")
    assert code == 1
    assert "! there is no board" in out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"not a database, but long enough to be looked at " * 100, b""])
def test_a_foreign_file_is_reported_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    code, document = asked(tmp_path, "--board", str(path), "doctor")
    assert code == 1
    assert document["findings"][0]["code"] == "board_unusable"
    assert path.read_bytes() == content


def test_a_damaged_file_is_reported_with_what_to_do(place: Path) -> None:
    with open_board(place) as board:
        board.add_many([{"description": f"task {n} " + "x" * 500} for n in range(300)])
    path = place / ".dibs" / "board.db"
    content = bytearray(path.read_bytes())
    page = 4096
    for at in range(len(content) // page // 2, len(content) // page - 2):
        content[at * page : at * page + 200] = b"\xa5" * 200
    path.write_bytes(content)
    code, document = asked(place, "doctor")
    assert code == 1
    damaged = next(finding for finding in document["findings"] if finding["code"] == "damaged")
    assert "newest export" in damaged["hint"]
    assert path.read_bytes() == content


def test_a_board_that_its_changelog_does_not_explain_is_reported(place: Path) -> None:
    with open_board(place) as board:
        board.add("x", id="x")
    connection = apsw.Connection(str(place / ".dibs" / "board.db"))
    connection.execute("UPDATE task SET description = 'y' WHERE id = 'x'").fetchall()
    connection.close()
    code, document = asked(place, "doctor")
    assert code == 1
    assert [finding["code"] for finding in document["findings"]] == ["changelog_differs"]
    assert "description is 'y', by the changelog 'x'" in document["findings"][0]["message"]


def test_deep_checks_every_index_entry(place: Path) -> None:
    code, document = asked(place, "doctor", "--deep")
    assert code == 0
    assert document["file"]["integrity"] == {"check": "integrity_check", "ok": True, "problems": []}


def by_hand(place: Path, *statements: str) -> None:
    """Change rows without dibs."""
    connection = apsw.Connection(str(place / ".dibs" / "board.db"))
    for statement in statements:
        connection.execute(statement).fetchall()
    connection.close()


def test_what_differs_from_the_changelog_is_said_in_plain_words(place: Path) -> None:
    with open_board(place) as board:
        board.add("x", id="x", steps=["one"])
        board.lock(["src/a.py"], "bob")
    by_hand(
        place,
        "UPDATE task SET status = 'completed', result = 'done', steps = NULL WHERE id = 'x'",
        "UPDATE lock SET shared = 1",
    )
    said = asked(place, "doctor")[1]["changelog"]["differences"]
    assert "task x: status is completed, by the changelog pending" in said
    assert "task x: result is 'done', by the changelog not set" in said
    assert any(line.endswith(": shared is True, by the changelog False") for line in said)
    assert not re.search("TaskStatus|Step[(]|Lock[(]|Worker[(]", "".join(said))


def test_edges_that_are_not_what_the_tasks_say_are_a_finding(place: Path) -> None:
    with open_board(place) as board:
        board.add_many([{"description": name, "id": name} for name in ("a", "b", "c")])
        board.add("d", id="d", depends_on=["a", "b"])
    assert asked(place, "doctor")[1]["edges"] == {"agree": True, "differences": []}
    by_hand(
        place,
        "DELETE FROM dependency WHERE needs = 2",
        "INSERT INTO dependency (needs, task) VALUES (3, 4), (1, 2), (1, 99)",
    )
    code, document = asked(place, "doctor")
    assert code == 1
    assert [finding["code"] for finding in document["findings"]] == ["edges_differ"]
    assert document["edges"]["differences"] == [
        "task d needs b, and has no edge to it",
        "task b has an edge to a, and does not need it",
        "task d has an edge to c, and does not need it",
        "task number 99 has an edge to a, and does not need it",
    ]
    assert "in 4 places" in document["findings"][0]["message"]
    assert "dibs copy" in document["findings"][0]["hint"]
    assert call(place, "copy", ".", "sqlite:new.db")[0] == 0
    assert asked(place, "--board", "sqlite:new.db", "doctor")[1]["edges"]["agree"]


def test_a_wrong_number_of_unmet_dependencies_is_a_finding(place: Path) -> None:
    with open_board(place) as board:
        board.add("a", id="a")
        board.add("b", id="b", depends_on=["a"])
    by_hand(place, "UPDATE task SET unmet = 0 WHERE id = 'b'")
    assert (
        "task b counts 0 unmet dependencies, by the changelog 1" in asked(place, "doctor")[1]["findings"][0]["message"]
    )


def test_a_lock_that_vanished_is_a_finding_also_when_its_time_is_over(place: Path) -> None:
    with open_board(place) as board:
        board.lock(["a.py"], ANN, lease=0.001)
        board.lock(["b.py"], ANN)
    by_hand(place, "DELETE FROM lock")
    differences = asked(place, "doctor")[1]["changelog"]["differences"]
    assert [text.partition(" (")[0] for text in differences] == ["the lock on a.py", "the lock on b.py"]
