"""Trying the git guard: a commit of the held path, and one of a free path, through the hook that git would run.

Both are staged in an index of their own, made from HEAD in a temporary folder, by the id of an empty file: nothing is
written to the repository, not even an object. A hook file that setup made is run as git runs it; of one that holds
other people's commands as well, only our check is.
"""

from __future__ import annotations

import os

from dibs.errors import Invalid
from dibs.proving.running import own_environment, run
from dibs.proving.trusted import foreign_hook
from dibs.setup import commands, githook
from dibs.setup.blocks import HASH, find

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.proving.running import Outcome

LARGEST = 1 << 20


class Guard:
    """What the hook file says. `argv` is what to run; `why_not`, that there is nothing to try, `fault`, why not,
    and `unreadable`, why it tells nothing."""

    def __init__(self) -> None:
        self.path: str | None = None
        self.argv: list[str] = []
        self.check: list[str] = []
        self.why_not: str | None = None
        self.fault: str | None = None
        self.unreadable: str | None = None
        self.remarks: list[str] = []

    @property
    def requires_lock(self) -> bool:
        return "--require-lock" in self.check


def read(root: str) -> Guard:
    guard = Guard()
    try:
        folder = _git(root, "rev-parse", "--git-path", "hooks")
    except (OSError, ValueError) as error:
        guard.why_not = f"git says: {error}"
        return guard
    guard.path = path = os.path.join(root, folder, "pre-commit")
    try:
        with open(path, "rb") as file:
            text = file.read(LARGEST).decode("utf-8", "replace")
    except OSError as error:
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            guard.why_not = "there is no pre-commit hook"
        else:
            guard.unreadable = f"cannot be read: {error.strerror or error}"
        return guard
    check = _check(text)
    if check is None:
        guard.why_not = "the pre-commit hook does not call dibs"
        return guard
    guard.check = check
    why = foreign_hook(commands.shell_line(check), check, "git", root)
    if why is not None:
        guard.fault = f"the check was not tried: {why}"
    elif not os.access(path, os.X_OK):
        guard.fault = f"{path} is not executable, so git does not run it (chmod +x)"
    elif _is_ours_alone(path, text, check):
        guard.argv = [path]
    else:
        guard.argv = check
        guard.remarks.append("the pre-commit hook holds other commands too; only the check of dibs was run")
        if not _comes_first(text):
            guard.remarks.append("other commands stand before the check; if one of them ends the hook, it is not made")
    return guard


def _check(text: str) -> list[str] | None:
    """The call of dibs in a hook's text."""
    for line in text.splitlines():
        argv = commands.hook_argv(line.strip().removesuffix("|| exit 1"))
        if commands.calls_hook(argv, "git"):
            return argv
    return None


def _is_ours_alone(path: str, text: str, check: Sequence[str]) -> bool:
    """Is every line of this file as setup writes it for this check?"""
    words = list(check[: check.index("hook")])
    rest = list(check[len(words) + 2 :])
    board = rest.pop(rest.index("--board") + 1) if "--board" in rest[:-1] else None
    flags = [word for word in rest if word != "--board"]
    try:
        return text == githook.add(path, None, words, flags, board)
    except Invalid:
        return False


def _comes_first(text: str) -> bool:
    try:
        block = find(text, HASH)
    except ValueError:
        return False
    return block is not None and text.split("\n")[1:2] == [HASH.first(block.words)]


async def attempt(guard: Guard, root: str, folder: str, env: dict[str, str], path: str) -> Outcome:
    """Ask the guard about a commit of this path. A repository that is no use raises ValueError."""
    import anyio

    index = await anyio.to_thread.run_sync(_stage, root, folder, path)
    return await run(guard.argv, folder, root, {**env, "GIT_INDEX_FILE": index})


def _stage(root: str, folder: str, path: str) -> str:
    index = os.path.join(folder, f"index-{os.path.basename(path)}")
    env = {**own_environment(), "GIT_INDEX_FILE": index}
    try:
        head = [_git(root, "rev-parse", "--verify", "--quiet", "HEAD^{tree}")]
    except ValueError:
        head = ["--empty"]
    _git(root, "read-tree", *head, env=env)
    empty = _git(root, "hash-object", "-t", "blob", "--stdin")
    _git(root, "update-index", "--add", "--cacheinfo", f"100644,{empty},{path}", env=env)
    return index


def _git(root: str, *words: str, env: dict[str, str] | None = None) -> str:
    from subprocess import DEVNULL, run

    # A split index would put its shared half into the repository, and a monitor would start a process.
    plain = [word for name in ("splitIndex", "fsmonitor", "untrackedCache") for word in ("-c", f"core.{name}=false")]
    around = own_environment() if env is None else env
    done = run(["git", *plain, *words], cwd=root, env=around, stdin=DEVNULL, capture_output=True, check=False)
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip() or f"git {words[0]}: exit code {done.returncode}"
        raise ValueError(said.splitlines()[0])
    return os.fsdecode(done.stdout.rstrip(b"\r\n"))
