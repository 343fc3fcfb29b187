"""A git worktree, with a branch of its own, for each agent.

    trees = Worktrees(workspace, folder, "dibs/1a2b")        Invalid if the workspace is no repository with a commit
    tree, branch = trees.make("worker-1")
    trees.tidy()                                            removes those in which nothing was done; what it kept

Made below the run's folder, from the commit that the workspace is on. What agents commit stays on their branches; a
worktree with commits or changes is never removed. A crash leaves worktrees as they are; `git worktree list` shows them.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from dibs.errors import Invalid

TRIES = 5
PATIENCE = 300.0
"""Seconds for git to make one worktree."""


class Worktrees:
    def __init__(self, workspace: str, folder: str, prefix: str) -> None:
        self._folder = folder
        self._prefix = prefix
        self._made: dict[str, tuple[str, str]] = {}
        self._turn = threading.Lock()
        self._running: subprocess.Popen[bytes] | None = None
        self._is_stopped = False
        self._workspace = workspace
        try:
            self._root = git(workspace, "rev-parse", "--show-toplevel")
            self._base = git(workspace, "rev-parse", "--verify", "HEAD^{commit}")
        except FileNotFoundError:
            raise Invalid("worktrees need git, which is not installed here", hint="install git") from None
        except GitError as error:
            raise Invalid(
                f"worktrees need a git repository with a commit, and {workspace} is none: {error}",
                hint="make one: git init && git add . && git commit -m start; or leave worktrees out",
            ) from None

    def make(self, name: str) -> tuple[str, str]:
        """The worktree of an agent, and its branch; the same one again for the same name. The directory that answers to
        the workspace: the same folder below the root."""
        with self._turn:
            tree, branch = os.path.join(self._folder, name), f"{self._prefix}/{name}"
            if name not in self._made:
                self._add(tree, branch)
                self._made[name] = (tree, branch)
            elif not os.path.isdir(tree):
                # Its agent has removed it. What was committed is on its branch.
                self._git("worktree", "prune")
                self._git("worktree", "add", "--quiet", tree, branch)
        inside = os.path.join(tree, os.path.relpath(os.path.realpath(self._workspace), os.path.realpath(self._root)))
        return os.path.normpath(inside) if os.path.isdir(inside) else tree, branch

    def _add(self, tree: str, branch: str) -> None:
        """Git does not wait for another git that changes the same repository, so try again. What a failed try left is
        nobody's: the names are of this run alone, and no agent has been there."""
        for tried in range(TRIES):
            try:
                self._git("worktree", "add", "--quiet", "-B", branch, tree, self._base)
                return
            except GitError:
                self._undo(tree, branch)
                if tried == TRIES - 1 or self._is_stopped:
                    raise
            time.sleep(0.1 * 2**tried)

    def _undo(self, tree: str, branch: str) -> None:
        """Git keeps a worktree locked while it makes it, and does not unlock it when it is killed."""
        shutil.rmtree(tree, ignore_errors=True)
        for words in (("worktree", "unlock", tree), ("worktree", "prune"), ("branch", "-q", "-D", branch)):
            try:
                git(self._workspace, *words)
            except (GitError, OSError):
                pass  # it did not come as far as that

    def _git(self, *words: str) -> None:
        """Git may run hooks and filters of the project, which may hang: it can be ended with all that it started."""
        command = ["git", *words]
        with open(os.devnull, "rb") as nothing, tempfile.TemporaryFile() as said:
            self._running = subprocess.Popen(
                command, cwd=self._workspace, env=_environment(), stdin=nothing, stdout=said, stderr=said,
                start_new_session=True,
            )  # fmt: skip
            try:
                if self._is_stopped:
                    self.stop()
                code = self._running.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self._end()
                raise GitError(f"git {' '.join(words[:2])} has not finished after {PATIENCE:.0f} s") from None
            finally:
                self._running = None
            if code:
                said.seek(0)
                lines = said.read().decode("utf-8", "replace").strip().splitlines()
                raise GitError(lines[-1] if lines else f"git {words[0]} failed")

    def begin(self) -> None:
        """A run begins: worktrees may be made again."""
        self._is_stopped = False

    def stop(self) -> None:
        """End what is being made, and make no more until the next `begin`."""
        self._is_stopped = True
        self._end()

    def _end(self) -> None:
        running = self._running
        if running is not None:
            try:
                os.killpg(running.pid, signal.SIGKILL)
            except (OSError, AttributeError):
                pass
            running.wait()

    def tidy(self) -> dict[str, str]:
        """Remove worktrees and branches that are as they were made; names and branches of those that are kept."""
        kept = {}
        for name, (tree, branch) in self._made.items():
            try:
                same = git(tree, "rev-parse", "HEAD") == self._base == git(tree, "rev-parse", branch)
                # All of them, whatever the user's configuration shows, and git itself would look at.
                changed = git(tree, "status", "--porcelain", "--ignored", "--untracked-files=all")
                if same and not changed and not _hides_something(tree) and not _has_left_commits(tree):
                    git(self._workspace, "worktree", "remove", tree)
                    git(self._workspace, "branch", "--quiet", "-d", branch)
                    continue
            except (GitError, OSError):
                pass  # somebody has moved or removed it: not ours any more
            kept[name] = branch
        for name in self._made.keys() - kept.keys():
            del self._made[name]
        return kept


def _hides_something(tree: str) -> bool:
    """Are there files that git was told not to look at (`update-index --assume-unchanged`, `--skip-worktree`)?"""
    listed = git(tree, "-c", "core.quotePath=false", "ls-files", "-v", "-z", ":/").split("\0")
    top = git(tree, "rev-parse", "--show-toplevel")
    return any((line[0] == "S" or line[0].islower()) and os.path.lexists(os.path.join(top, line[2:]))
               for line in listed if line)  # fmt: skip


def _has_left_commits(tree: str) -> bool:
    """Were commits made here that are on no branch? With the worktree its record of them would go."""
    seen = git(tree, "log", "-g", "--format=%H", "HEAD").split()
    return bool(seen) and git(tree, "rev-list", "--count", *dict.fromkeys(seen[:200]), "--not", "--all") != "0"


class GitError(Exception):
    pass


def git(folder: str, *words: str) -> str:
    """What git printed. Its environment must not lead to another repository than the folder's."""
    done = subprocess.run(
        ["git", *words],
        cwd=folder,
        env=_environment(),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise GitError(lines[-1] if lines else f"git {words[0]} failed")
    return done.stdout.strip()


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("GIT_")} | {"LC_ALL": "C"}
