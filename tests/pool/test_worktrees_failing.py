"""Worktrees that cannot be made, that hang, that their agents remove: what was not touched goes, work stays."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dibs.pool import worktrees
from tests.pool.conftest import Place, Plans, branches, git, settled, soon, trees

COMMIT = "command git add . && git -c user.name=a -c user.email=a@b commit -qm work"


def beset(repository: Path, name: str, how: str) -> None:
    """Git runs a filter of the project when it makes a worktree; in the one of this agent, that is what it does."""
    script = repository / ".git" / "filter.sh"
    script.write_text(f'case "$PWD" in */{name}) {how} ;; esac\nexec cat\n')
    git(repository, "config", "filter.odd.smudge", f"sh {script}")
    git(repository, "config", "filter.odd.clean", "cat")
    git(repository, "config", "filter.odd.required", "true")
    (repository / ".gitattributes").write_text("*.txt filter=odd\n")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "a filter")


def test_one_of_several_that_cannot_be_made_leaves_nothing_and_the_others_work(
    place: Place, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worktrees, "TRIES", 2)
    beset(repository, "worker-2", "exit 1")
    plans = Plans(worker_1="claim; write new.txt; complete; note wrote; work", worker_3="until worker-1 wrote; work")
    results = place.run(plans, 3, tasks=["x", "y", "z"], worktrees=True, restarts=0)
    assert results.ending == "done"
    changed, failed, clean = results
    assert (failed.agent, failed.status, failed.worktree, failed.branch) == ("worker-2", "error", None, None)
    assert "its worktree could not be made: " in (failed.error or "")
    assert (clean.worktree, clean.branch) == (None, None)
    assert trees(repository)[1:] == [changed.worktree]
    assert branches(repository) == sorted([changed.branch or "", "main"])


@pytest.mark.parametrize("again", [False, True])
def test_stopped_while_one_is_being_made_the_untouched_go_and_the_changed_stay(
    place: Place, repository: Path, again: bool
) -> None:
    beset(repository, "worker-3", f'touch "{place.notes}/hangs"; sleep 600')

    async def play() -> None:
        plans = Plans(worker_1="claim; write new.txt; note wrote; sleep", worker_2="claim; sleep")
        async with place.pool(plans, 3, worktrees=True) as pool:
            pool.add_tasks(["x", "y"])
            running = asyncio.create_task(pool.run_team())
            await place.noted("worker-1 wrote")
            await place.claimed("worker-2")
            pool.add_tasks(["z"])
            await place.noted("hangs")
            for _ in range(20 if again else 1):
                pool.stop()
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await soon(running)
            assert place.left() == []
            settled(pool.board)
            changed, *others = pool.agents
            assert trees(repository)[1:] == [changed.worktree]
            assert branches(repository) == sorted([changed.branch or "", "main"])
            assert [(agent.worktree, agent.branch) for agent in others] == [(None, None)] * 2
            assert (Path(changed.worktree or "") / "new.txt").exists()
            assert sorted(p.name for p in (repository / ".git" / "worktrees").iterdir()) == ["worker-1"]

    asyncio.run(play())


def test_a_worktree_that_its_agent_removed_is_there_again_for_its_next_start(place: Place, repository: Path) -> None:
    first = f'claim; write mine.txt; {COMMIT}; write lost.txt; command rm -rf "$PWD"; kill'
    plans = Plans(worker=[first, 'command ls; work; command rm -rf "$PWD"'])
    results = place.run(plans, 1, tasks=["x"], worktrees=True)
    assert (results.ending, results[0].status, results[0].runs) == ("done", "completed", 2)
    assert results[0].output.split() == ["mine.txt", "sub"]
    assert not Path(results[0].worktree or "").exists()
    assert git(repository, "log", "--format=%s", results[0].branch or "").splitlines() == ["work", "start"]


@pytest.mark.parametrize(
    "how",
    [
        "command git update-index --assume-unchanged sub/a.txt && echo work > sub/a.txt",
        "command git update-index --skip-worktree sub/a.txt && echo work > sub/a.txt",
        f"command git checkout -q --detach && echo work > sub/a.txt; {COMMIT} && git checkout -q -",
    ],
    ids=["assume-unchanged", "skip-worktree", "left on no branch"],
)
def test_work_that_git_does_not_show_is_kept(place: Place, repository: Path, how: str) -> None:
    results = place.run(Plans(worker=f"claim; {how}; complete"), 1, tasks=["x"], worktrees=True)
    assert results.ending == "done"
    tree = results[0].worktree
    assert tree is not None
    assert trees(repository)[1:] == [tree]
    if "detach" not in how:
        assert (Path(tree) / "sub" / "a.txt").read_text() == "work\n"
    else:
        assert "commit: work" in git(Path(tree), "reflog", "HEAD")
