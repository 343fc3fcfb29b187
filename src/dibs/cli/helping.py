"""Help texts, made from `spec`: the overview, a command's page, its usage line. Imported only to show them."""

from __future__ import annotations

from dibs.cli.args import UsageError, find
from dibs.cli.render import wrap
from dibs.cli.spec import COMMANDS, FOLDED, GLOBALS, GROUPS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.cli.args import Args
    from dibs.cli.context import Context
    from dibs.cli.spec import Command, Option

WIDTH = 80


def help_(ctx: Context, args: Args) -> int:
    if args.command is None:
        ctx.say(overview())
        return 0
    command = find(args.command)
    if command is None:
        from dibs.cli.spec import GUESSES

        command = find(dict(GUESSES).get(args.command, ""))
    if command is None:
        from dibs.cli.guessing import closest

        near = closest(args.command, [entry[0] for entry in COMMANDS])
        raise UsageError(f"no command {args.command[:40]!r}", f"did you mean: dibs help {near}" if near else "")
    ctx.say(details(command))
    return 0


def overview() -> str:
    """All commands on one screen."""
    lines = [
        "dibs: the referee for agents and people who work on one code base",
        "  dibs init                    once per repository",
        "  dibs add 'what to do'        put a task on the board",
        "  dibs claim                   take the best task, with its files locked",
        "  dibs done 'what you did'     finish it; the next one waits for you",
        "",
    ]
    summaries = {entry[0]: entry[3] for entry in COMMANDS}
    for title, names in GROUPS:
        lines.append(title)
        lines += [f"  {name:<12}{summaries[name]}" for name in names]
    lines += [f"{title}: {' '.join(names)}" for title, names in FOLDED]
    lines += [
        "options for all: --board URL  --as NAME  --human  --json  --no-color",
        "URL: sqlite:PATH postgresql://… (taskboard workflow workitems bilu spec):DIR",
        "environment: DIBS_BOARD DIBS_AGENT DIBS_KIND DIBS_SESSION DIBS_JSON NO_COLOR",
        "ids may be shortened; exit codes: 0 ok, 1 refused, 2 usage, 3 nothing to claim",
        "locks: what changes a board in files takes its lock (bilu: storage/lock,",
        "workflow: board.lock); looking does not (list show ready log check rebuild);",
        "busy: somebody is writing, nothing was changed, try again; who: dibs doctor",
        "more about a command: dibs COMMAND --help",
    ]
    return "\n".join(lines)


def usage(command: Command) -> str:
    """The command on one line."""
    words = ["dibs", command[0]]
    for name, how, text in command[4]:
        shown = name.upper()
        if name == "words":
            words.append(text.partition(":")[0])
        elif how == "one":
            words.append(shown)
        elif how == "optional":
            words.append(f"[{shown}]")
        elif how == "some":
            words.append(f"{shown}...")
        elif how == "many":
            words.append(f"[{shown}...]")
        elif how == "rest":
            words.append(f"-- {shown}...")
    if command[5]:
        words.insert(2, "[options]") if command[4] and command[4][-1][1] == "rest" else words.append("[options]")
    return " ".join(words)


def details(command: Command) -> str:
    """A command's page."""
    _, _, _, summary, params, options, examples, more = command
    lines = [f"usage: {usage(command)}", "", *wrap(summary[0].upper() + summary[1:] + ".", WIDTH, ""), ""]
    rows = [(name.upper(), text) for name, how, text in params if how != "surplus" and name != "words"]
    if rows:
        lines += [*_columns(rows), ""]
    if options:
        lines += ["options:", *_columns([(_spelt(option), option[5]) for option in options]), ""]
    if more:
        lines += [*wrap(more, WIDTH, ""), ""]
    lines += ["example:" if len(examples) == 1 else "examples:", *(f"  {example}" for example in examples), ""]
    lines.append("for all commands: " + "  ".join(_spelt(option) for option in GLOBALS[:5]))
    return "\n".join(lines)


def _spelt(option: Option) -> str:
    long, short, metavar, _, _, _ = option
    return (f"{short}, " if short else "") + long + (f" {metavar}" if metavar else "")


def _columns(rows: list[tuple[str, str]]) -> list[str]:
    first = max(len(left) for left, _ in rows)
    lines = []
    for left, right in rows:
        wrapped = wrap(right, WIDTH, " " * (first + 4))
        lines.append(f"  {left:<{first}}  {wrapped[0].lstrip()}")
        lines += wrapped[1:]
    return lines
