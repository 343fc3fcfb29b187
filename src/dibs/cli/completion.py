"""`dibs completion bash|zsh|fish`: completion scripts, made from `spec`.

The scripts know commands, options and choices by themselves; for task ids they ask `dibs completion ids`, which prints
the ids and descriptions of open and failed tasks, and nothing at all where there is no board.
"""

from __future__ import annotations

from dibs.cli.args import UsageError
from dibs.cli.spec import COMMANDS, GLOBALS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from dibs.cli.args import Args
    from dibs.cli.context import Context
    from dibs.cli.spec import Command, Option

MOST_IDS = 200
_TAKES_ID = ("--needs", "--drop", "--parent", "--task")
_ID_FIRST = ("done", "fail", "step")
"""Commands whose words may begin with an id, besides those that have a parameter called id."""
_CLIENTS = ["claude", "codex", "gemini", "claude-sdk"]
"""What is offered after these options, which also take something else."""
_TAKES_CLIENT = ("--agent", "--lead-agent")


def completion(ctx: Context, args: Args) -> int:
    if args.shell == "ids":
        return _print_ids(ctx)
    scripts = {"bash": bash, "zsh": zsh, "fish": fish}
    if args.shell not in scripts:
        raise UsageError(f"completion: no shell {args.shell!r:.60}", "one of: bash, zsh, fish")
    ctx.say(scripts[args.shell]().rstrip("\n"))
    return 0


def _print_ids(ctx: Context) -> int:
    from dibs.cli.render import cut, one_line
    from dibs.errors import DibsError, quoted

    try:
        tasks, _ = ctx.board.tasks(["in_progress", "review", "pending", "failed"], limit=MOST_IDS)
    except DibsError:
        return 0
    for task in tasks:
        if quoted(task.id) != task.id:
            continue  # bash runs what it is given to complete: a board that came with a clone is not to say what
        ctx.say(f"{task.id}\t{cut(one_line(task.description), 60)}")
    return 0


def _takes_id(command: Command) -> bool:
    return command[0] in _ID_FIRST or any(param[0] == "id" for param in command[4])


def _names(option: Option) -> list[str]:
    return [name for name in option[:2] if name]


def _choices(option: Option) -> list[str]:
    if option[0] in _TAKES_CLIENT:
        return _CLIENTS
    return option[3].split("|") if "|" in option[3] else []


def _takes_file(option: Option) -> bool:
    return option[0] in ("--path", "--file", "--board") or option[2] == "FILE"


def _words(command: Command) -> list[str]:
    """What may stand after a command that takes no id."""
    if command[0] == "help":
        return [entry[0] for entry in COMMANDS]
    return ["bash", "zsh", "fish"] if command[0] == "completion" else []


# -- bash


def bash() -> str:
    names = " ".join(command[0] for command in COMMANDS)
    shared = " ".join(name for option in GLOBALS for name in _names(option))
    return f"""# completion of dibs for bash; load it with: eval "$(dibs completion bash)"
_dibs() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} command= words= ids= i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${{COMP_WORDS[i]}} in
            --board|--as) ((i++)) ;;
            -*) ;;
            *) command=${{COMP_WORDS[i]}}; break ;;
        esac
    done
    COMPREPLY=()
    if [[ -z $command ]]; then
        case $prev in --board|--as) return ;; esac
        COMPREPLY=($(compgen -W "{names} {shared}" -- "$cur"))
        return
    fi
    case "$command $prev" in
{chr(10).join(_bash_values())}
    esac
    if [[ $cur == -* ]]; then
        case $command in
{chr(10).join(_bash_options())}
        esac
        COMPREPLY=($(compgen -W "$words {shared}" -- "$cur"))
        return
    fi
    case $command in
{chr(10).join(_bash_words())}
    esac
    [[ -n $ids ]] && words=$(dibs completion ids 2>/dev/null | cut -f1)
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
}}
complete -o bashdefault -o default -F _dibs dibs
"""


def _bash_values() -> Iterator[str]:
    """What the word after an option may be; after a free text nothing is offered, after a path bash offers files."""
    for command in COMMANDS:
        for option in command[5]:
            if option[3] == "flag":
                continue
            pattern = "|".join(f'"{command[0]} {name}"' for name in _names(option))
            if choices := _choices(option):
                yield f'        {pattern}) COMPREPLY=($(compgen -W "{" ".join(choices)}" -- "$cur")); return ;;'
            elif option[0] in _TAKES_ID:
                ids = "$(dibs completion ids 2>/dev/null | cut -f1)"
                yield f'        {pattern}) COMPREPLY=($(compgen -W "{ids}" -- "$cur")); return ;;'
            else:
                yield f"        {pattern}) return ;;"
    yield "        *' --board'|*' --as') return ;;"


def _bash_options() -> Iterator[str]:
    for command in COMMANDS:
        if command[5]:
            yield f'            {command[0]}) words="{" ".join(n for option in command[5] for n in _names(option))}" ;;'


def _bash_words() -> Iterator[str]:
    yield f"        {'|'.join(command[0] for command in COMMANDS if _takes_id(command))}) ids=1 ;;"
    for command in COMMANDS:
        if words := _words(command):
            yield f'        {command[0]}) words="{" ".join(words)}" ;;'
    yield "        *) return ;;"


# -- zsh


def zsh() -> str:
    commands = "\n".join(f"        {_quoted(f'{command[0]}:{command[3]}')}" for command in COMMANDS)
    shared = "\n".join(f"        {spec}" for option in GLOBALS for spec in _zsh_option(option))
    cases = "\n".join(_zsh_cases())
    return f"""#compdef dibs
# completion of dibs for zsh; load it with: source <(dibs completion zsh)
_dibs_ids() {{
    local -a ids
    local line
    for line in ${{(f)"$(dibs completion ids 2>/dev/null)"}}; do
        ids+=("${{${{line%%$'\\t'*}}//:/\\\\:}}:${{line#*$'\\t'}}")
    done
    _describe -t tasks task ids
}}
_dibs() {{
    local -a commands shared
    commands=(
{commands}
    )
    shared=(
{shared}
    )
    local context state line
    typeset -A opt_args
    _arguments -C $shared '1:command:->command' '*::argument:->argument'
    case $state in
        command) _describe -t commands command commands ;;
        argument)
            case $line[1] in
{cases}
                *) _arguments $shared '*:file:_files' ;;
            esac ;;
    esac
}}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _dibs "$@"
else
    compdef _dibs dibs
fi
"""


def _zsh_cases() -> Iterator[str]:
    for command in COMMANDS:
        specs = [spec for option in command[5] for spec in _zsh_option(option)]
        if _takes_id(command):
            specs += ["'1:task:_dibs_ids'", "'*:text: '"]
        elif words := _words(command):
            specs.append(f"'1:word:({' '.join(words)})'")
        else:
            specs.append("'*:file:_files'")
        yield f"                {command[0]}) _arguments $shared {' '.join(specs)} ;;"


def _zsh_option(option: Option) -> Iterator[str]:
    text = option[5]
    for old, new in (("\\", "\\\\"), ("[", "\\["), ("]", "\\]"), (":", "\\:")):
        text = text.replace(old, new)
    for name in _names(option):
        spec = ("*" if option[4] else "") + f"{name}[{text}]"
        if option[3] != "flag":
            value = f"({' '.join(_choices(option))})" if _choices(option) else " "
            if option[0] in _TAKES_ID:
                value = "_dibs_ids"
            elif _takes_file(option):
                value = "_files"
            spec += f":{option[2]}:{value}"
        yield _quoted(spec)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


# -- fish


def fish() -> str:
    lines = [
        "# completion of dibs for fish; load it with: dibs completion fish | source",
        "function __dibs_command",
        "    set -l words (commandline -opc)",
        "    set -e words[1]",
        "    while set -q words[1]",
        "        switch $words[1]",
        "            case --board --as",
        "                set -e words[1]",
        "            case '-*'",
        "            case '*'",
        "                echo $words[1]",
        "                return 0",
        "        end",
        "        set -e words[1]",
        "    end",
        "    return 1",
        "end",
        "function __dibs_is",
        "    contains -- (__dibs_command; or echo none) $argv",
        "end",
        "complete -c dibs -f",
    ]
    lines += [_fish_option(option, "") for option in GLOBALS]
    for command in COMMANDS:
        lines.append(f"complete -c dibs -n 'not __dibs_command' -a {command[0]} -d {_fish_quoted(command[3])}")
        when = f" -n '__dibs_is {command[0]}'"
        lines += [_fish_option(option, when) for option in command[5]]
        if words := _words(command):
            lines.append(f"complete -c dibs{when} -a '{' '.join(words)}'")
    with_id = " ".join(command[0] for command in COMMANDS if _takes_id(command))
    lines.append(f"complete -c dibs -n '__dibs_is {with_id}' -a '(dibs completion ids 2>/dev/null)'")
    with_file = " ".join(
        command[0] for command in COMMANDS if any(p[0] in ("path", "file", "command") for p in command[4])
    )
    lines.append(f"complete -c dibs -n '__dibs_is {with_file.replace(' help', '')}' -F")
    return "\n".join(lines) + "\n"


def _fish_option(option: Option, when: str) -> str:
    long, short, _, kind, _, text = option
    line = f"complete -c dibs{when} -l {long[2:]}" + (f" -s {short[1:]}" if short else "")
    if kind != "flag":
        line += " -r"
        if choices := _choices(option):
            line += f" -a '{' '.join(choices)}'"
        elif long in _TAKES_ID:
            line += " -a '(dibs completion ids 2>/dev/null)'"
        elif _takes_file(option):
            line += " -F"
    return f"{line} -d {_fish_quoted(text)}"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
