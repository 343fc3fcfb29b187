"""The commands that setup writes into configurations, and how they are recognised there again.

They name the program by its absolute path: clients start with other search paths than shells, and another `dibs` that
happens to be found first would be another version, or somebody else's program.
"""

from __future__ import annotations

import os
import sys

from dibs.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_SAFELY = ["-P", "-m", "dibs"]
_ONCE = ["-m", "dibs"]
"""As earlier versions wrote it."""


def program() -> list[str]:
    """The dibs that is running, as a client can start it from anywhere."""
    path: str | None = sys.argv[0]
    if path and not os.path.dirname(path):
        from shutil import which

        path = which(path)
    # Links are not followed: a package manager keeps /…/bin/dibs pointing at the version of the day.
    if path and _is_dibs(path) and os.path.isfile(path) and os.access(path, os.X_OK):
        return _usable([os.path.abspath(path)])
    # Without -P the working directory is searched first, and a folder dibs in the repository would be run instead.
    return _usable([os.path.abspath(sys.executable), *_SAFELY])


def _usable(words: list[str]) -> list[str]:
    try:
        words[0].encode("utf-8")
    except UnicodeEncodeError:
        fault = f"the path of dibs cannot be written as text: {words[0]!a}"
    else:
        if "$" not in words[0] and words[0].isprintable():
            return words
        fault = f"clients would not read the path of dibs as it is: {words[0]!r}"
    raise Invalid(fault, hint="install dibs in a folder with an ordinary name, and use that one")


def is_temporary(words: Sequence[str]) -> bool:
    """Is it an environment that a runner such as uvx made for one call, and will clear away?"""
    folders = words[0].replace("\\", "/").split("/")
    return "archive-v0" in folders or ("pipx" in folders and ".cache" in folders)


def again(
    client: str,
    board: str | None = None,
    flags: Sequence[str] = (),
    *,
    worktrees: bool = False,
    skill: bool = False,
    remove: bool = False,
) -> str:
    """The command that sets a client up with these options, for a person to run."""
    words = ["dibs", *_named(board), "setup", client]
    given = (("--remove", remove), ("--worktrees", worktrees), *((flag, True) for flag in flags), ("--skill", skill))
    return shell_line([*words, *(word for word, is_given in given if is_given)])


def prove(board: str | None) -> str:
    return shell_line(["dibs", *_named(board), "doctor", "--prove"])


def _named(board: str | None) -> list[str]:
    """The option that names a board. What somebody wrote into a configuration may hold a password."""
    if board is None:
        return []
    from dibs.stores.postgres.addresses import public

    return ["--board", public(board)]


def not_found() -> str | None:
    """What to do so that an agent's shell finds the command dibs; None if it does."""
    from shutil import which

    if which("dibs"):
        return None
    folders = (os.path.dirname(os.path.abspath(path)) for path in (sys.argv[0], sys.executable))
    folder = next((folder for folder in folders if which("dibs", path=folder)), None)
    if folder is None:
        return "the agent's shell will not find dibs: install it so that there is a command dibs on the PATH"
    return f"the agent's shell will not find dibs: put {folder} on its PATH, or link it"


# -- MCP


def server(words: Sequence[str], client: str, rooted: bool, board: str | None) -> dict[str, Any]:
    """The entry of the server, as all clients but for their own additions write it."""
    args = [*words[1:], "mcp", "--client", client]
    if rooted:
        args += ["--root", "${workspaceFolder}"]
    if board is not None:
        args += ["--board", board]
    return {"command": words[0], "args": args}


def is_server(entry: Any, client: str) -> bool:
    """Is it an entry that setup wrote, with whatever path and options?"""
    argv = server_argv(entry)
    return argv is not None and _is_absolute(argv[0]) and after_program(argv)[:3] == ["mcp", "--client", client]


def server_argv(entry: Any) -> list[str] | None:
    """The command and arguments of a server's entry, if it has such."""
    if not isinstance(entry, dict) or not isinstance(entry.get("command"), str):
        return None
    args = entry.get("args", [])
    if not isinstance(args, list) or not all(isinstance(arg, str) for arg in args):
        return None
    return [entry["command"], *args]


# -- hooks


def hook(words: Sequence[str], client: str, flags: Sequence[str], board: str | None) -> str:
    """The command line of a hook, for a shell."""
    argv = [*words, "hook", client, *flags, *([] if board is None else ["--board", board])]
    if os.name == "nt":
        from subprocess import list2cmdline

        return list2cmdline(argv)
    return shell_line(argv)


def shell_line(argv: Sequence[str]) -> str:
    from shlex import join

    return join(argv)


def is_hook(command: Any, client: str) -> bool:
    argv = hook_argv(command)
    return bool(argv) and _is_absolute(argv[0]) and after_program(argv)[:2] == ["hook", client]


def hook_argv(command: Any) -> list[str]:
    """The words of a hook's command line; none if it is not such a line."""
    if not isinstance(command, str):
        return []
    from shlex import split

    try:
        return split(command.replace("\\", "/") if os.name == "nt" else command)
    except ValueError:
        return []


def calls_hook(argv: Sequence[str], client: str) -> bool:
    """Does it look like a hook of dibs for this client, whatever the program is?"""
    return ["hook", client] in (list(argv[at : at + 2]) for at in (1, 3, 4))


def is_unsafe(argv: Sequence[str]) -> bool:
    """Is it a call that runs a package dibs of the working directory, if there is one?"""
    return list(argv[1:3]) == _ONCE


def after_program(argv: Sequence[str]) -> list[str]:
    """What follows `/path/dibs` or `/path/python -P -m dibs`; nothing if it is another program."""
    for module in (_SAFELY, _ONCE):
        if list(argv[1 : 1 + len(module)]) == module:
            return list(argv[1 + len(module) :])
    return list(argv[1:]) if argv and _is_dibs(argv[0]) else []


def _is_dibs(path: str) -> bool:
    """`dibs`, `dibs.exe`, `dibs.pyz`: other tools have a `hook claude`, too."""
    return path.replace("\\", "/").rpartition("/")[2].lower().partition(".")[0] == "dibs"


def _is_absolute(path: str) -> bool:
    return path.startswith(("/", "\\\\")) or path[1:3] in (":\\", ":/")
