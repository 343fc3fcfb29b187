"""A git worktree for each worker: made once, kept if something was done in it, else cleared away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dibs.errors import Invalid
from dibs.pool.results import Results
from dibs.pool.worktrees import Worktrees
from tests.pool.conftest import Place, Plans, branches, git, together, trees

COMMIT = "command git add . && git -c user.name=a -c user.email=a@b commit -qm work"


def run(place: Place, plans: Plans, agents: int, tasks: int, **more: object) -> Results:
    return place.run(plans, agents, tasks=[f"task {n}" for n in range(tasks)], worktrees=True, **more)


def test_each_worker_has_its_own_and_is_told_so(place: Place, repository: Path) -> None:
    steps = f"prompt; pwd; claim; write mine.txt; {COMMIT}; complete; work 0.2"
    results = run(place, Plans(worker=steps), 3, 6)
    assert results.ending == "done"
    assert len({result.worktree for result in results}) == len({result.branch for result in results}) == 3
    for result in results:
        assert result.worktree is not None
        assert result.branch is not None
        assert result.output.splitlines()[-1] == result.worktree
        assert f"on the branch {result.branch}" in result.output
        assert (Path(result.worktree) / "mine.txt").exists()
        assert git(repository, "log", "--format=%s", result.branch).splitlines() == ["work", "start"]
    assert not (repository / "mine.txt").exists()
    assert git(repository, "status", "--porcelain") == ""
    assert sorted(branches(repository)) == sorted(["main", *(result.branch or "" for result in results)])
    started = [event for event in place.events if event.kind == "agent_started"]
    assert {event.data["branch"] for event in started} == {result.branch for result in results}


def test_a_worker_that_is_started_again_finds_its_worktree_as_it_was(place: Place, repository: Path) -> None:
    results = run(place, Plans(worker=["pwd; claim; write half.txt; kill", "pwd; command cat half.txt; work"]), 1, 1)
    assert (results.ending, results[0].runs) == ("done", 2)
    assert results[0].output == f"{results[0].worktree}\nsomething\n"


def test_only_those_in_which_nothing_was_done_are_removed(place: Place, repository: Path) -> None:
    plans = Plans(
        worker_1="claim; complete; until all",
        worker_2="claim; write new.txt; complete; until all",
        worker_3="claim; command echo b >> sub/a.txt; complete; until all",
        worker_4="claim; write secret.ignored; complete; until all",
        worker_5=f"claim; write new.txt; {COMMIT}; complete; until all",
        worker_6="claim; command git checkout -q --detach; complete; until all",
        worker_7="claim; complete; claim; note all",
    )
    results = run(place, plans, 7, 7, grace=2.0)
    assert results.ending == "done"
    kept = {result.agent for result in results if result.worktree}
    assert {f"worker-{n}" for n in (2, 3, 4, 5)} <= kept
    assert {"worker-1", "worker-7"}.isdisjoint(kept)
    for result in results:
        if result.worktree:
            assert Path(result.worktree).is_dir()
            assert result.branch in branches(repository)
    assert len(trees(repository)) == 1 + len(kept)
    assert len(branches(repository)) == 1 + len(kept)


def test_new_files_count_also_where_git_is_told_not_to_show_them(place: Place, repository: Path) -> None:
    git(repository, "config", "status.showUntrackedFiles", "no")
    results = run(place, Plans(worker="claim; write new.txt; complete"), 1, 1)
    assert results.ending == "done"
    assert Path(results[0].worktree or "gone", "new.txt").exists()


def test_a_workspace_in_a_folder_of_the_repository(place: Place, repository: Path) -> None:
    results = run(place, Plans(worker="pwd; write here.txt; work"), 1, 1, workspace=repository / "sub")
    assert results[0].worktree is not None
    assert results[0].output.strip() == results[0].worktree
    assert Path(results[0].worktree).name == "sub"
    assert (Path(results[0].worktree) / "a.txt").read_text() == "a\n"
    assert Path(git(Path(results[0].worktree), "rev-parse", "--show-toplevel")) == Path(results[0].worktree).parent


def test_a_workspace_that_the_commit_does_not_have(place: Place, repository: Path) -> None:
    (repository / "new").mkdir()
    results = run(place, Plans(worker="pwd; write x; work"), 1, 1, workspace=repository / "new")
    assert results.ending == "done"
    assert Path(results[0].output.strip()).is_dir()


def test_the_lead_works_in_the_workspace(place: Place, repository: Path) -> None:
    results = run(place, Plans(lead="pwd", worker="work"), 1, 1, lead="Plan.")
    assert (results[0].output.strip(), results[0].worktree) == (str(repository), None)


def test_two_teams_in_one_repository(place: Place, repository: Path) -> None:
    """In folders of the same name: branches and worktrees do not get in each other's way."""
    given: dict[str, Any] = {"tasks": ["x"] * 4, "worktrees": True, "workspace": repository}
    sides = [place.beside("a"), place.beside("b")]
    plans = Plans(worker="write mine.txt; work 0.1"), Plans(worker="write mine.txt; work 0.1")
    together(*(side.play(p, 3, folder=side.path / "my run..", **given) for side, p in zip(sides, plans, strict=True)))
    assert len(trees(repository)) == len(branches(repository)) == 7


def test_a_worktree_that_cannot_be_made(place: Place, repository: Path) -> None:
    """There is a branch where the branches are to be."""
    git(repository, "branch", "dibs")
    results = run(place, Plans(worker="work"), 1, 1, restarts=0)
    assert results.ending == "gave up"
    assert "its worktree could not be made: " in results.why
    assert (results[0].status, results[0].worktree, results[0].branch) == ("error", None, None)


def test_gits_own_variables_lead_nowhere_else(place: Place, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool may run in a hook of another repository."""
    other = place.path / "other"
    other.mkdir()
    git(other, "init", "-q")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    made = Worktrees(str(repository), str(place.path / "trees"), "dibs/x")
    tree, branch = made.make("w")
    assert made.make("w") == (tree, branch)
    assert (Path(tree) / "sub" / "a.txt").exists()
    monkeypatch.delenv("GIT_DIR")
    monkeypatch.delenv("GIT_INDEX_FILE")
    assert branch in branches(repository)
    assert made.tidy() == {}
    assert branches(repository) == ["main"]


def test_agents_have_none_of_gits_own_variables(
    place: Place, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(place.path / "elsewhere"))
    results = run(place, Plans(worker="claim; command git rev-parse --show-toplevel; complete"), 1, 1, restarts=0)
    assert results.ending == "done"


@pytest.mark.parametrize("there", ["no repository", "no commit"])
def test_a_workspace_that_is_none(place: Place, there: str) -> None:
    if there == "no commit":
        git(place.workspace, "init", "-q")
    with pytest.raises(Invalid, match="git repository with a commit") as caught:
        run(place, Plans(worker="work"), 1, 1)
    assert "git init" in (caught.value.hint or "")
