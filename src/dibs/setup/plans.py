"""What setup would do to which file, then the doing. See the head of the package."""

from __future__ import annotations

import os

from dibs import fs
from dibs.errors import Invalid, quoted
from dibs.setup import advice, configs, githook
from dibs.setup.clients import CLIENTS, Client

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Edit = Callable[[str | None], str | None]


class Options:
    __slots__ = ("board", "flags", "skill", "words")

    def __init__(self, words: Sequence[str], flags: Sequence[str] = (), skill: bool = False, board: str | None = None):
        self.words = list(words)
        self.flags = list(flags)
        self.skill = skill
        self.board = board


class File:
    """A file, as it is (None: it is not there) and as it is to be. `ours`: something of dibs is to be in it."""

    __slots__ = ("after", "before", "bounds", "executable", "ours", "path", "shown")

    def __init__(self, path: str, shown: str, before: bytes | None, bounds: Sequence[str]) -> None:
        self.path = path
        self.shown = shown
        self.before = before
        self.after = before
        self.bounds = [os.path.realpath(bound) for bound in bounds]
        self.executable = False
        self.ours = False

    @property
    def action(self) -> str:
        """created, changed, removed or unchanged"""
        if self.before == self.after and not self.lacks_mode:
            return "unchanged"
        return "created" if self.before is None else "removed" if self.after is None else "changed"

    @property
    def lacks_mode(self) -> bool:
        return self.executable and self.before is not None and not os.stat(self.path).st_mode & 0o111

    @property
    def text(self) -> str | None:
        return None if self.after is None else self.after.decode("utf-8")


class Plan:
    def __init__(self, root: str) -> None:
        self.root = os.path.realpath(root)
        self.files: dict[str, File] = {}
        self.warnings: list[str] = []

    def edit(self, path: str, change: Edit, bounds: Sequence[str] | None = None) -> File:
        """Apply a change to what a file is to become."""
        file = self._file(path, [self.root] if bounds is None else bounds)
        try:
            text = change(file.text)
        except Invalid:
            raise
        except configs.Foreign as error:
            hint = "it stays as it is; if it is meant to be this board's, rename or remove it first, then try again"
            raise Invalid(f"{file.shown}: {error}; nothing was written", hint=hint) from None
        except (ValueError, RecursionError) as error:
            raise Invalid(f"cannot change {file.shown}: {error}; nothing was written", hint=_mend(file.shown)) from None
        after = None if text is None else text.encode("utf-8")
        if after != file.before:
            self._check_writable(file)
        file.after = after
        return file

    def add(self, path: str, change: Edit, bounds: Sequence[str] | None = None) -> File:
        file = self.edit(path, change, bounds)
        file.ours = True
        return file

    def drop(self, path: str, change: Callable[[str], str | None], bounds: Sequence[str] | None = None) -> File:
        return self.edit(path, lambda text: None if text is None else change(text), bounds)

    def _file(self, path: str, bounds: Sequence[str]) -> File:
        full = os.path.join(self.root, path)
        real = os.path.realpath(full)
        shown = os.path.relpath(full, self.root)
        if real in self.files:
            return self.files[real]
        if not any(real.startswith(os.path.join(os.path.realpath(bound), "")) for bound in bounds):
            raise Invalid(
                f"{shown} leads out of this repository, to {real}; nothing was written",
                hint="put a file of its own in the place of the link, then try again",
            )
        try:
            data = fs.read_file(real)
        except OSError as error:
            raise Invalid(f"cannot read {shown}: {error.strerror}; nothing was written", hint=_mend(shown)) from None
        if data is not None:
            try:
                data.decode("utf-8")
            except UnicodeDecodeError:
                raise Invalid(f"{shown} is not UTF-8 text; nothing was written", hint=_mend(shown)) from None
        self.files[real] = File(real, shown if not shown.startswith("..") else full, data, bounds)
        return self.files[real]

    def _check_writable(self, file: File) -> None:
        if file.before is not None and not os.stat(file.path).st_mode & 0o222:
            raise Invalid(
                f"{file.shown} is read-only; nothing was written",
                hint=f"if it may be changed: chmod u+w {quoted(file.shown)}, then try again",
            )
        folder = os.path.dirname(file.path)
        while not os.path.lexists(folder):
            folder = os.path.dirname(folder)
        if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
            raise Invalid(
                f"cannot write {file.shown}: {folder} is not a folder that you may write in; nothing was written",
                hint="see to that, then try again",
            )

    @property
    def changes(self) -> list[File]:
        return [file for file in self.files.values() if file.action != "unchanged"]

    def write(self) -> None:
        for file in self.changes:
            try:
                _write(file)
            except OSError as error:
                raise Invalid(
                    f"cannot write {file.shown}: {error.strerror or error}; the files before it are written",
                    hint="see to that; the same command again completes it",
                ) from error


def _mend(shown: str) -> str:
    return f"mend {shown}, then try again; to see what would be written: --dry-run"


def _write(file: File) -> None:
    def is_as_planned() -> None:
        if fs.read_file(file.path) != file.before:
            raise Invalid(
                f"{file.shown} was changed by somebody else just now; it was left alone",
                hint="the same command again takes that into account",
            )

    if file.after is None:
        is_as_planned()
        os.unlink(file.path)
        _prune(os.path.dirname(file.path), file.bounds)
        return
    os.makedirs(os.path.dirname(file.path), exist_ok=True)
    if file.after != file.before:
        fs.replace_file(file.path, file.after, before=is_as_planned)
    if file.executable:
        os.chmod(file.path, os.stat(file.path).st_mode | 0o111)


def _prune(folder: str, bounds: Sequence[str]) -> None:
    """Remove folders that are empty now, below the bounds."""
    while folder not in bounds and any(folder.startswith(os.path.join(bound, "")) for bound in bounds):
        try:
            os.rmdir(folder)
        except OSError:
            return
        folder = os.path.dirname(folder)


# -- clients


def install(name: str, root: str, options: Options) -> Plan:
    plan = Plan(root)
    if name == "git":
        _install_git(plan, options)
        return plan
    client = CLIENTS[name]
    entry = client.server(options.words, options.board)
    is_toml = client.mcp.endswith(".toml")
    add_server = configs.add_server_toml if is_toml else configs.add_server
    mcp = plan.add(client.mcp, lambda text: add_server(text, client, entry))
    if client.enforces:
        entries = client.hook_entries(options.words, options.flags, options.board)
        hooks = plan.add(client.hooks, lambda text: configs.add_hooks(text, client, entries))
        plan.warnings += configs.remarks(client, mcp.text, hooks.text)
    if options.skill:
        _drop_advice(plan, client)
        plan.add(client.skill, _renew_skill)
    else:
        first = plan.add(client.advice_files(plan.root)[0], lambda text: advice.add(text, client.name))
        _drop_advice(plan, client, but=first)
        plan.drop(client.skill, _drop_skill)
    return plan


def remove(name: str, root: str) -> Plan:
    plan = Plan(root)
    if name == "git":
        path, bounds = githook.find_file(plan.root)
        plan.drop(path, githook.drop, bounds)
        return plan
    client = CLIENTS[name]
    drop_server = configs.drop_server_toml if client.mcp.endswith(".toml") else configs.drop_server
    plan.drop(client.mcp, lambda text: drop_server(text, client))
    if client.enforces:
        plan.drop(client.hooks, lambda text: configs.drop_hooks(text, client))
    _drop_advice(plan, client)
    skill = plan.drop(client.skill, _drop_skill)
    if skill.after is not None:
        plan.warnings.append(f"{skill.shown} was changed by somebody, and stays")
    return plan


def _drop_advice(plan: Plan, client: Client, but: File | None = None) -> None:
    for path in client.advice_files(plan.root):
        if but is None or os.path.realpath(os.path.join(plan.root, path)) != but.path:  # CLAUDE.md is often a link
            plan.drop(path, lambda text: advice.drop(text, client.name))


def _renew_skill(text: str | None) -> str:
    if text is not None and not advice.is_our_skill(text):
        raise configs.Foreign("there is a skill called dibs that is not, or no longer, as dibs setup wrote it")
    return advice.skill()


def _drop_skill(text: str) -> str | None:
    return None if advice.is_our_skill(text) else text


def _install_git(plan: Plan, options: Options) -> None:
    path, bounds = githook.find_file(plan.root)
    file = plan.add(path, lambda text: githook.add(path, text, options.words, options.flags, options.board), bounds)
    file.executable = file.before is None or githook.is_made(file.text or "")
