"""`dibs setup`: what it did to each file, and what is left to do by hand."""

from __future__ import annotations

import os

from dibs.cli.args import UsageError
from dibs.cli.render import hint, safe
from dibs.setup import commands, excludes, plans
from dibs.setup.clients import CLIENTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.cli.args import Args
    from dibs.cli.context import Context
    from dibs.setup.plans import File, Plan

_NAMES = (*CLIENTS, "git")
_ALIASES = {"copilot": "vscode", "github-copilot": "vscode", "code": "vscode", "claude-code": "claude"}
_DID = {"created": "wrote", "changed": "changed", "removed": "removed", "unchanged": "unchanged"}
_WOULD = {"created": "would write", "changed": "would change", "removed": "would remove", "unchanged": "unchanged"}


def setup(ctx: Context, args: Args) -> int:
    _check(args)
    name = args.client
    roots = _roots(ctx, args.worktrees)
    others = [] if name == "git" else [tree for tree in _others(roots[0]) if tree not in roots]
    flags = [flag for flag, given in (("--require-lock", args.require_lock), ("--closed", args.closed)) if given]
    words, board = ([], None) if args.remove else (commands.program(), ctx.board.url if ctx.url else None)
    options = plans.Options(words, flags, args.skill, board)
    made = [plans.remove(name, root) if args.remove else plans.install(name, root, options) for root in roots]
    kept = excludes.Kept() if name == "git" else excludes.apply(made, name, args.remove, others)
    steps = _left(name, others) if args.remove else _steps(ctx, name, options, made, kept, others)
    files = [file for plan in made for file in plan.files.values() if file.ours or file.action != "unchanged"]
    changed = any(plan.changes for plan in made)
    warnings = [warning for plan in made for warning in plan.warnings]
    diff = "\n".join(line for plan in made for file in plan.changes for line in _file_diff(file, _shown(file, roots)))
    actions = [{"path": _shown(file, roots), "action": file.action} for file in files]
    steps = steps if changed or args.remove else []
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
            "next": steps,
        }
        ctx.emit({**document, "diff": diff} if args.dry_run else document)
        return 0
    _report(ctx, args, actions, changed, diff if args.dry_run else "", warnings, steps)
    return 0


def _check(args: Args) -> None:
    if args.client not in _NAMES:
        raise UsageError(f"setup: no client {safe(args.client)!r}", _meant(args.client))
    if args.skill and args.client == "git":
        raise UsageError("setup git: --skill is for coding clients")
    if args.worktrees and args.client == "git":
        raise UsageError("setup git: all worktrees share one pre-commit hook", "leave --worktrees out")
    if args.client == "vscode" and (args.require_lock or args.closed):
        given = [
            flag for flag, is_given in (("--require-lock", args.require_lock), ("--closed", args.closed)) if is_given
        ]
        raise UsageError(
            f"setup vscode: {given[0]} is for hooks, and VS Code has none of dibs",
            f"to guard commits: {commands.again('git', None, given)}",
        )


def _meant(given: str) -> str:
    from difflib import get_close_matches

    plain = given.lower()
    near = _ALIASES.get(plain) or next(iter(get_close_matches(plain, _NAMES, 1)), None)
    if near:
        return f"did you mean {near}? one of {', '.join(_NAMES)}"
    server = commands.shell_line([*commands.program(), "mcp", "--client"])
    return (
        f"one of {', '.join(_NAMES)}; any other client that speaks MCP: let it start {server} NAME; "
        "to guard commits: dibs setup git"
    )


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
    from dibs.errors import Invalid, Unsupported
    from dibs.radar import worktrees

    try:
        return [tree for tree in worktrees(root) if tree != root]
    except (Invalid, Unsupported):  # no repository, or no git
        return []


def _shown(file: File, roots: list[str]) -> str:
    return file.shown if len(roots) == 1 else os.path.relpath(file.path, roots[0])


def _enforces(name: str) -> str:
    """What a worker that is set up so cannot do: edits, commits, or (advice) nothing."""
    return "commits" if name == "git" else "edits" if CLIENTS[name].enforces else "advice"


def _steps(
    ctx: Context, name: str, options: plans.Options, made: list[Plan], kept: excludes.Kept, others: list[str]
) -> list[str]:
    from dibs.errors import DibsError, NoBoard

    steps = []
    again = commands.again(name, options.board, options.flags, worktrees=len(made) > 1, skill=options.skill)
    try:
        url = ctx.board.url
    except NoBoard:
        steps.append("there is no board yet: dibs init")
    except DibsError as error:
        steps.append(f"the board cannot be used ({error.message}): dibs doctor")
    else:
        if os.environ.get("DIBS_BOARD") and not ctx.url:
            named = commands.again(name, url, options.flags, worktrees=len(made) > 1, skill=options.skill)
            steps.append(
                f"DIBS_BOARD is set here, but where the client starts it may not be; to write it down: {named}"
            )
        steps += _password(ctx, url)
    if name != "git":
        steps += _committing(made, kept)
        steps += _older(name, options, made[0].root)
        steps += CLIENTS[name].steps
        steps += _lacking(name, options, others)
        missing = commands.not_found()
        steps += [missing] if missing else []
    if commands.is_temporary(options.words):
        steps.append(
            f"{options.words[0]} is in a cache that may be cleared: install dibs for good, then again: {again}"
        )
    steps.append(f"see that it works: {commands.prove(options.board)}")
    return steps


def _password(ctx: Context, url: str) -> list[str]:
    """How the client's processes get in where a password is asked for: none is ever written down."""
    given = ctx.url or os.environ.get("DIBS_BOARD")
    if not given or not url.startswith("postgresql:"):
        return []
    from dibs.stores.postgres.addresses import has_password

    if not has_password(given) and not os.environ.get("PGPASSWORD"):
        return []
    return ["the password is written nowhere: where the client starts, ~/.pgpass (or PGPASSWORD) must provide it"]


def _committing(made: list[Plan], kept: excludes.Kept) -> list[str]:
    """What to commit of all this, and what not."""
    if not kept.is_git:
        return []
    steps = []
    if kept.out:
        named, they = _and(kept.out), "they name" if kept.out[1:] else "it names"
        them = "them" if kept.out[1:] else "it"
        if kept.shown is None:
            steps.append(f"keep {named} out of commits: {they} this machine's dibs by its path")
        else:
            steps.append(f"git ignores {named} here: {they} this machine's dibs by its path; do not commit {them}")
    for path in kept.tracked:
        again = commands.shell_line(["git", "update-index", "--skip-worktree", path])
        steps.append(f"{path} is tracked: do not commit this change ({again})")
    written = [file for plan in made for file in plan.changes if file.ours and file.path.endswith(".md")]
    where = " in every worktree" if made[1:] else ""
    return steps + [f"commit {path}{where}: it names no machine" for path in dict.fromkeys(f.shown for f in written)]


def _and(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def _older(name: str, options: plans.Options, root: str) -> list[str]:
    if name != "claude" or options.skill or CLIENTS[name].advice_files(root)[0] != "AGENTS.md":
        return []
    if any(os.path.exists(os.path.join(root, path)) for path in ("CLAUDE.md", ".claude/CLAUDE.md")):
        return []  # which imports it
    return ["Claude Code older than 2.1.277 does not read AGENTS.md: import it in CLAUDE.md (@AGENTS.md)"]


def _lacking(name: str, options: plans.Options, others: list[str]) -> list[str]:
    lack = sum(not CLIENTS[name].is_set_up(tree) for tree in others)
    if not lack:
        return []
    which = "" if lack < len(others) else "the "
    them = f"{which or '1 '}other worktree does" if lack == 1 else f"{which}{lack} other worktrees do"
    again = commands.again(name, options.board, options.flags, worktrees=True, skill=options.skill)
    return [f"{them} not have these files: {again}"]


def _left(name: str, others: list[str]) -> list[str]:
    """After it was taken out here: who still has it."""
    have = sum(CLIENTS[name].is_set_up(tree) for tree in others)
    if not have:
        return []
    them = "another worktree still has it" if have == 1 else f"{have} other worktrees still have it"
    return [f"{them}: {commands.again(name, remove=True, worktrees=True)}"]


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
        ctx.note("\n".join(_wrapped(f"dibs: {warning}", ctx.width)))
    if not changed:
        ctx.say("nothing of dibs is here" if args.remove else f"{args.client} is already set up; nothing was changed")
    elif args.dry_run:
        ctx.say("nothing was written")
    for step in () if args.dry_run else steps:
        ctx.say("  - " + "\n".join(hint(step, ctx.width, "    ")).lstrip())


def _wrapped(text: str, width: int) -> list[str]:
    """A remark whose first line begins at the margin."""
    first, *more = hint(text, width - 2, "")
    return [first, *(line for part in more for line in hint(part, width))]


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
