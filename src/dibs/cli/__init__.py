"""The command `dibs`: `main` finds the command word, imports that command's module and nothing else, and turns errors
into exit codes.

Exit codes: 0 ok, 1 refused or failed, 2 not understood, 3 nothing to claim (or waited in vain), 130 interrupted.
A command is `function(ctx: Context, args: Args) -> exit code`; which one, and what it takes, is in `spec`.
"""

from __future__ import annotations

import os
import sys

from dibs.cli.args import UsageError, find, parse, split
from dibs.cli.context import Context, OutputLost, wants_json, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dibs.cli.args import Args
    from dibs.cli.spec import Command
    from dibs.errors import DibsError

OK, REFUSED, USAGE, NOTHING, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 3, 130, 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Without `argv` it is the process's own, and the process ends here."""
    if argv is None:
        import gc

        gc.set_threshold(20_000)  # start-up makes much and drops little
    given = sys.argv[1:] if argv is None else list(argv)
    opened: list[Context] = []
    try:
        code = _flushed(_guarded(given, opened))
    finally:
        for context in opened:
            context.close()
    if argv is None and "threading" not in sys.modules:
        # Everything is written and closed; taking the interpreter apart would cost a tenth of the command's time.
        # Whatever has threads, or atexit handlers that matter, has imported `threading` and ends in the ordinary way.
        if sys.stderr is not None:
            sys.stderr.flush()
        os._exit(code)
    return code


def _guarded(argv: list[str], opened: list[Context]) -> int:
    try:
        return _run(argv, opened)
    except UsageError as error:
        return _usage(error, argv)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return _pipe_closed()
    except OutputLost as error:
        return _output_lost(str(error))
    except Exception as error:
        if opened:
            opened[0].explain(error)
        return _refused(error, opened[0].json if opened else _asked_for_json(argv))


def _flushed(code: int) -> int:
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        return _pipe_closed()
    except OSError as error:
        return _output_lost(error.strerror or str(error))
    return code


def _output_lost(why: str) -> int:
    """Not a refusal: the command may have been carried out before its answer was lost."""
    _discard_stdout()
    write(sys.stderr, f"dibs: the output could not be written ({why}); to see what was done: dibs log\n")
    return REFUSED


def _pipe_closed() -> int:
    """The reader has gone (`dibs list | head -1`): end quietly, with the code of a tool that SIGPIPE ended."""
    _discard_stdout()
    return PIPE_CLOSED


def _discard_stdout() -> None:
    # Otherwise the interpreter tries to flush once more at its end, and complains.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _run(argv: list[str], opened: list[Context]) -> int:
    args, word, rest = split(argv)
    if args.version:
        return _version()
    if word is None:
        from dibs.cli.helping import overview

        write(sys.stdout, overview() + "\n")
        return OK
    command = find(word)
    if command is None:
        command = _guess(word, rest, args.json or wants_json())
    args = parse(command, rest, args)
    if args.version:
        return _version()
    if args.help:
        from dibs.cli.helping import details

        write(sys.stdout, details(command) + "\n")
        return OK
    module = __import__(f"dibs.cli.{command[1]}", fromlist=[command[2]])
    function: Callable[[Context, Args], int] = getattr(module, command[2])
    context = Context(args)
    opened.append(context)
    try:
        return function(context, args)
    except UsageError as error:
        error.command = error.command or command
        raise


def _version() -> int:
    from dibs import __version__

    write(sys.stdout, f"dibs {__version__}\n")
    return OK


def _guess(word: str, rest: list[str], json: bool) -> Command:
    """The command that a word of another tool stands for; a usage error with the nearest word if it can't be told."""
    from dibs.cli.spec import COMMANDS, GUESSES, HINTS

    meant = dict(GUESSES).get(word.lower())
    if meant is None and find(word.lower()) is not None:
        meant = word.lower()
    if meant is not None:
        if not json:
            write(sys.stderr, f"dibs: {word} is called {meant} here\n")
        found = find(meant)
        assert found is not None
        return found
    from dibs.cli.guessing import closest
    from dibs.cli.render import cut, safe

    hint = dict(HINTS).get(word.lower())
    if hint is not None and rest and rest[0].replace("-", "").replace("_", "").isalnum() and rest[0][0] != "-":
        hint = hint.replace(" ID", f" {rest[0][:128]}")
    if hint is None:
        near = closest(word, [command[0] for command in COMMANDS] + [guess for guess, _ in GUESSES])
        near = dict(GUESSES).get(near or "", near)
        hint = f"dibs {near}" if near else None
    from dibs.address import masked

    shown = cut(safe(masked(word)), 40)
    if hint and not hint.startswith("dibs "):
        raise UsageError(f"no command {shown!r}", hint)
    raise UsageError(f"no command {shown!r}", f"did you mean: {hint}" if hint else "")


def _asked_for_json(argv: list[str]) -> bool:
    return wants_json() or "--json" in argv[: argv.index("--") if "--" in argv else None]


def _usage(error: UsageError, argv: list[str]) -> int:
    from dibs.cli.helping import usage
    from dibs.cli.render import hint, safe

    line = usage(error.command) if error.command else "dibs COMMAND ..."
    see = f"dibs {error.command[0]} --help" if error.command else "dibs --help"
    # To a coding client, a hook that ends with 2 has forbidden the edit.
    code = REFUSED if (error.command[0] == "hook" if error.command else "hook" in argv) else USAGE
    if _asked_for_json(argv):
        from dibs.jsontext import dumps

        document = {"code": "usage", "message": error.message, "hint": error.hint, "usage": line, "see": see}
        write(sys.stderr, dumps({"error": document}) + "\n")
        return code
    lines = [f"dibs: {safe(error.message)}"]
    if error.hint:
        lines += hint(error.hint)
    lines += [f"  usage: {line}", f"  see: {see}"]
    write(sys.stderr, "\n".join(lines) + "\n")
    return code


def _refused(error: Exception, json: bool) -> int:
    from dibs.errors import DibsError

    if os.environ.get("DIBS_DEBUG"):
        import traceback

        traceback.print_exc()
    if not isinstance(error, DibsError):
        error = _as_dibs_error(error)
    from dibs.address import masked_in

    # An address where none belongs (`dibs import URL`) is quoted by whoever did not expect it.
    error.message, error.hint = masked_in(error.message), masked_in(error.hint)
    error.fields = {key: masked_in(value) if isinstance(value, str) else value for key, value in error.fields.items()}
    if json:
        from dibs.jsontext import dumps
        from dibs.wire import error_json

        write(sys.stderr, dumps(error_json(error)) + "\n")
        return REFUSED
    from dibs.cli.render import hint, safe

    lines = [f"dibs: {safe(error.message)}", *(hint(error.hint) if error.hint else ())]
    write(sys.stderr, "\n".join(lines) + "\n")
    return REFUSED


def _as_dibs_error(error: Exception) -> DibsError:
    from dibs.errors import DibsError

    if isinstance(error, OSError) and error.filename is not None:
        made = DibsError(f"{error.filename}: {error.strerror or error}")
        made.code = "os_error"
        return made
    made = DibsError(
        f"internal error: {type(error).__name__}: {error}",
        hint="for the traceback run it again with DIBS_DEBUG=1 in the environment",
    )
    made.code = "internal"
    return made
