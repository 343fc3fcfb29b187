"""Is a command that stands in somebody's file one of dibs, and safe to run? Runs nothing.

    foreign_hook(line, argv, client, root)          why a hook is not to be run; None if it may be
    foreign_server(argv, settings, cwd, root)       the same of an MCP server

A command may be run only if it is a plain call of the dibs that is running, or of the one on the PATH unless that lies
in the repository itself, with no more words and variables than `dibs setup` writes.
"""

from __future__ import annotations

import os
import sys

from dibs.setup import commands

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FLAGS = ("--require-lock", "--closed")
"""Of hooks."""
_VARIABLES = (
    "DIBS_BOARD", "DIBS_AGENT", "DIBS_KIND", "DIBS_SESSION", "DIBS_RUNTIME_DIR", "XDG_RUNTIME_DIR", "NO_COLOR",
)  # fmt: skip
"""What an entry may set for its server. Others (PYTHONPATH, LD_PRELOAD, PATH) make it run what they point at."""


def foreign_hook(line: str, argv: Sequence[str], client: str, root: str) -> str | None:
    """Why a hook's line is more, or something else, than a plain call of dibs."""
    why = _foreign_program(argv, root, root) or _surplus(argv, ("hook", client), FLAGS, ("--board", "--as"))
    return why or ("it does more than call dibs" if is_compound(line) else None)


def foreign_server(argv: Sequence[str], settings: Iterable[str], cwd: str, root: str) -> str | None:
    """Why a server's entry is more, or something else, than a plain call of dibs."""
    for name in settings:
        if name not in _VARIABLES:
            return f"its entry sets {name[:60]}"
    if not _is_inside(cwd, root):
        return f"its working directory is outside this worktree: {cwd[:80]!r}"
    if not os.path.isabs(argv[0]):
        return f"{argv[0]} is not a full path"
    values = ("--client", "--root", "--board", "--as")
    return _foreign_program(argv, root, cwd) or _surplus(argv, ("mcp",), (), values)


def _surplus(argv: Sequence[str], verbs: Sequence[str], flags: Sequence[str], values: Sequence[str]) -> str | None:
    """What a call of dibs has besides its verbs, flags, and options with values; what else may run anything."""
    wanted, words = list(verbs), commands.after_program(argv)
    while words:
        word = words.pop(0)
        name, equals, _ = word.partition("=")
        if word in wanted[:1]:
            wanted.pop(0)
        elif name in values and (equals or words):
            del words[: 0 if equals else 1]
        elif word not in flags:
            return f"it has more than dibs setup writes: {word!r:.60}"
    return f"it is no call of dibs {' '.join(verbs)}" if wanted else None


def is_compound(line: str) -> bool:
    """Would a shell do anything with this line besides running one command as it stands?"""
    from shlex import shlex

    if not line.isprintable() or any(sign in line for sign in "`$"):
        return True
    words = shlex(line, posix=True, punctuation_chars=True)
    words.commenters = ""
    try:
        return any(word and set(word) <= set("();<>|&") for word in words)
    except ValueError:
        return True


def _foreign_program(argv: Sequence[str], root: str, cwd: str) -> str | None:
    """Why a command, run in a folder, is none of a dibs that may be run here; None if it is one."""
    if not _is_ours(argv):
        return f"it is no call of dibs: {' '.join(argv)[:80]!r}"
    from shutil import which

    search = os.environ.get("PATH", os.defpath).split(os.pathsep)
    on_path = which("dibs", path=os.pathsep.join(os.path.join(cwd, folder) for folder in search))
    program: str | None = argv[0]
    if argv[0] == "dibs":  # as people write it into the hooks of other tools: the shell searches it
        program = on_path
        if program is None:
            return "there is no dibs on the PATH"
    if program is None or not os.path.isabs(program):
        return f"{argv[0]} is not a full path"
    if not _is_running(program, _is_module(argv)):
        if _is_inside(os.path.dirname(program), root) or _is_inside(program, root):
            return f"{argv[0]} lies in this repository, and is not the dibs that is running"
        if not os.path.exists(program):
            return f"there is no {argv[0]}"
        if _is_module(argv) or not _is_same(program, on_path):
            return f"{argv[0]} is neither the dibs that is running nor the one on the PATH"
    shadow = _shadow((root, cwd)) if commands.is_unsafe(argv) else None
    return f"without -P, python -m dibs runs {shadow}, which lies in this repository" if shadow else None


def _is_running(program: str, is_module: bool) -> bool:
    """Is it the interpreter that runs us, the dibs beside it, or the dibs that was called?"""
    from shutil import which

    folder = os.path.dirname(sys.executable)
    if is_module:
        # By its folder as well: in every virtual environment is a link to the same interpreter, which makes that
        # interpreter run what is installed there.
        return _is_same(os.path.dirname(program), folder) and _is_same(program, sys.executable)
    called = sys.argv[0] if os.path.dirname(sys.argv[0]) else None
    return _is_same(program, called) or _is_same(program, which("dibs", path=folder))


def _is_same(path: str, other: str | None) -> bool:
    try:
        return other is not None and os.path.realpath(path) == os.path.realpath(other)
    except ValueError:  # no path can hold a NUL
        return False


def _is_ours(argv: Sequence[str]) -> bool:
    if not commands.after_program(argv):
        return False
    name = argv[0].replace("\\", "/").rpartition("/")[2].lower()
    return name.startswith(("python", "pypy")) if _is_module(argv) else name.partition(".")[0] == "dibs"


def _is_module(argv: Sequence[str]) -> bool:
    return argv[1] in ("-P", "-m")


def _shadow(folders: Iterable[str]) -> str | None:
    """What Python would find under the name of dibs if it looked in these folders first."""
    places = (os.path.join(folder, name) for folder in folders for name in ("dibs", "dibs.py", "dibs.pyc"))
    return next((path for path in places if os.path.lexists(path)), None)


def _is_inside(path: str, folder: str) -> bool:
    """Is it the folder, or in it?"""
    try:
        return os.path.join(os.path.realpath(path), "").startswith(os.path.join(os.path.realpath(folder), ""))
    except ValueError:  # no path can hold a NUL
        return False
