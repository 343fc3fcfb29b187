"""`dibs setup`: what it did to each file, and what is left to do by hand."""

from __future__ import annotations

import os

from dibs.cli.args import UsageError
from dibs.cli.render import hint, quoted, safe
from dibs.setup import commands, plans
from dibs.setup.clients import CLIENTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.cli.args import Args
    from dibs.cli.context import Context
    from dibs.setup.plans import File, Plan

_NAMES = (*CLIENTS, "git")
_DID = {"created": "wrote", "changed": "changed", "removed": "removed", "unchanged": "unchanged"}
_WOULD = {"created": "would write", "changed": "would change", "removed": "would remove", "unchanged": "unchanged"}


def setup(ctx: Context, args: Args) -> int:
    _check(args)
    name = args.client
    roots = _roots(ctx, args.worktrees)
    flags = [flag for flag, given in (("--require-lock", args.require_lock), ("--closed", args.closed)) if given]
    if args.remove:
        made, steps = [plans.remove(name, root) for root in roots], []
    else:
        words = commands.program()
        board = ctx.board.url if ctx.url else None
        made = [plans.install(name, root, plans.Options(words, flags, args.skill, board)) for root in roots]
        steps = _steps(ctx, name, words, made)
    files = [file for plan in made for file in plan.files.values() if file.ours or file.action != "unchanged"]
    changed = any(plan.changes for plan in made)
    warnings = [warning for plan in made for warning in plan.warnings]
    diff = "\n".join(line for plan in made for file in plan.changes for line in _file_diff(file, _shown(file, roots)))
    actions = [{"path": _shown(file, roots), "action": file.action} for file in files]
    if not args.dry_run:
        for plan in made:
            plan.write()
    if ctx.json:
        document = {
            "client": name,
            "root": roots[0],
            "removed": args.remove,
            "dry_run": args.dry_run,
            "changed": changed,
            "files": actions,
            "enforces": _enforces(name),
            "warnings": warnings,
            "next": steps if changed else [],
        }
        ctx.emit({**document, "diff": diff} if args.dry_run else document)
        return 0
    _report(ctx, args, actions, changed, diff if args.dry_run else "", warnings, steps)
    return 0


def _check(args: Args) -> None:
    if args.client not in _NAMES:
        from difflib import get_close_matches

        near = get_close_matches(args.client, _NAMES, 1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise UsageError(f"setup: no client {safe(args.client)!r}", f"{meant}one of {', '.join(_NAMES)}")
    if args.skill and args.client == "git":
        raise UsageError("setup git: --skill is for coding clients")
    if args.worktrees and args.client == "git":
        raise UsageError("setup git: all worktrees share one pre-commit hook", "leave --worktrees out")
    if args.client == "vscode" and (args.require_lock or args.closed):
        given = "--require-lock" if args.require_lock else "--closed"
        raise UsageError(f"setup vscode: {given} is for hooks, which dibs has none of for VS Code", "dibs setup git")


def _roots(ctx: Context, everywhere: bool) -> list[str]:
    """The worktree that we stand in, or all of its repository, that one first; outside git the board's folder."""
    from dibs.places import find_place, working_directory

    here = working_directory()
    worktree = find_place(here).worktree
    if worktree is None:
        return [os.path.realpath(ctx.board.store.place or here)]
    root = os.path.realpath(worktree)
    return [root, *(tree for tree in _others(root))] if everywhere else [root]


def _others(root: str) -> list[str]:
    """The other worktrees of the repository, as far as git can list them."""
    from dibs.errors import Invalid
    from dibs.radar import worktrees

    try:
        return [tree for tree in worktrees(root) if tree != root]
    except Invalid:
        return []


def _shown(file: File, roots: list[str]) -> str:
    return file.shown if len(roots) == 1 else os.path.relpath(file.path, roots[0])


def _enforces(name: str) -> str:
    """What a worker that is set up so cannot do: edits, commits, or (advice) nothing."""
    return "commits" if name == "git" else "edits" if CLIENTS[name].enforces else "advice"


def _steps(ctx: Context, name: str, words: list[str], made: list[Plan]) -> list[str]:
    from dibs.errors import DibsError, NoBoard

    steps = []
    try:
        url = ctx.board.url
    except NoBoard:
        steps.append("there is no board yet: dibs init")
    except DibsError as error:
        steps.append(f"the board cannot be used ({error.message}): dibs doctor")
    else:
        if os.environ.get("DIBS_BOARD") and not ctx.url:
            again = f"dibs --board {quoted(url)} setup {name}"
            steps.append(
                f"DIBS_BOARD is set here, but where the client starts it may not be; to write it down: {again}"
            )
    if name != "git":
        files = made[0].files.values()
        named = [file.shown for file in files if file.ours and words[0].encode() in (file.after or b"")]
        steps.append(
            f"keep {' and '.join(named)} out of commits: {'they name' if named[1:] else 'it names'} this "
            "machine's dibs by its path"
        )
        steps += CLIENTS[name].steps
        others = len(_others(made[0].root)) if len(made) == 1 else 0
        if others:
            lack = "the other worktree does" if others == 1 else f"the {others} other worktrees do"
            steps.append(f"{lack} not have these files: dibs setup {name} --worktrees")
    if commands.is_temporary(words):
        steps.append(
            f"{words[0]} is in a cache that may be cleared: install dibs for good, then dibs setup {name} again"
        )
    steps.append("see that it works: dibs doctor --prove")
    return steps


def _report(
    ctx: Context,
    args: Args,
    actions: list[dict[str, str]],
    changed: bool,
    diff: str,
    warnings: list[str],
    steps: list[str],
) -> None:
    if diff:
        ctx.say("\n".join("\t".join(map(safe, line.split("\t"))) for line in diff.split("\n")))
    words = _WOULD if args.dry_run else _DID
    for each in actions:
        ctx.say(f"{words[each['action']]:<{max(map(len, words.values()))}} {safe(each['path'])}")
    for warning in warnings:
        ctx.note(f"dibs: {safe(warning)}")
    if not changed:
        ctx.say("nothing of dibs is here" if args.remove else f"{args.client} is already set up; nothing was changed")
    elif args.dry_run:
        ctx.say("nothing was written")
    elif steps:
        for step in steps:
            ctx.say("  - " + "\n".join(hint(step, ctx.width, "    ")).lstrip())


def _file_diff(file: File, shown: str) -> list[str]:
    from difflib import unified_diff

    before, after = (None if data is None else data.decode("utf-8") for data in (file.before, file.after))
    shown = shown.replace(os.sep, "/")
    old, new = ("/dev/null" if text is None else shown for text in (before, after))
    lines: list[str] = []
    for line in unified_diff(_lines(before), _lines(after), old, new):
        lines.append(line.removesuffix("\n"))
        if not line.endswith("\n"):
            lines.append("\\ No newline at end of file")
    return lines


def _lines(text: str | None) -> list[str]:
    """Lines as diff counts them: only \\n ends one."""
    parts = (text or "").split("\n")
    return [part + "\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
