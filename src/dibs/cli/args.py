"""The command line, read by the tables of `dibs.cli.spec`.

`split` finds the command word, `parse` reads what belongs to it. Written by hand because `argparse` alone costs as
much start-up time as a bare interpreter. Global options may stand before or after the command word.
"""

from __future__ import annotations

from dibs.cli.spec import COMMANDS, GLOBALS, OPTION_GUESSES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn

    from dibs.cli.spec import Command, Option


class Args:
    """One attribute for each parameter and option, dashes as underscores (`--as` is `as_`, `--for` is `for_`).

    Not given: None, an empty list for what may be repeated, False for flags.
    """

    if TYPE_CHECKING:
        board: str | None
        as_: str | None
        human: bool
        json: bool
        no_color: bool
        help: bool
        version: bool
        beside: tuple[str, str, str] | None
        """An option that takes one id and may be repeated, its id, and the word that came after that."""

        def __getattr__(self, name: str) -> Any: ...


class UsageError(Exception):
    """The command line does not say what to do. `command` is the command's entry in `spec`, where it is known."""

    def __init__(self, message: str, hint: str = "", command: Command | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.command = command


def find(name: str) -> Command | None:
    """A command's entry in the table."""
    for command in COMMANDS:
        if command[0] == name:
            return command
    return None


def split(argv: Sequence[str]) -> tuple[Args, str | None, list[str]]:
    """(the global options before the command word, the word, everything after it)."""
    args = Args()
    for option in GLOBALS:
        setattr(args, attribute(option[0]), False if option[3] == "flag" else None)
    words = list(argv)
    reader = _Reader(args, GLOBALS, None)
    while words:
        word = words.pop(0)
        if word == "--":
            continue
        if word[:1] != "-" or word == "-":
            return args, word, words
        reader.option(word, words)
    return args, None, []


def parse(command: Command, argv: Sequence[str], args: Args | None = None) -> Args:
    """What a command was given; `args` holds the global options that were read already."""
    if args is None:
        args = split(())[0]
    params, options = command[4], command[5]
    for option in options:
        setattr(args, attribute(option[0]), [] if option[4] else False if option[3] == "flag" else None)
    args.beside = None
    reader = _Reader(args, options + GLOBALS, command)
    words = list(argv)
    given: list[str] = []
    rest = bool(params) and params[-1][1] == "rest"
    while words:
        word = words.pop(0)
        if word == "--":
            given += words
            break
        if word[:1] != "-" or word == "-":
            given.append(word)
            if rest and len(given) >= len(params):
                given += words
                break
        else:
            option = reader.option(word, words)
            if _is_for_one_id(option) and words and words[0][:1] != "-":
                args.beside = (option[0], getattr(args, attribute(option[0]))[-1], words[0])
    if not (args.help or args.version):
        _place(command, given, args)
    return args


def _place(command: Command, given: list[str], args: Args) -> None:
    """Distribute the words that are not options over the parameters."""
    for name, how, text in command[4]:
        if how == "surplus":
            if given:
                again = repeated(*args.beside) if args.beside and args.beside[2] == given[0] else ""
                hint = again or _meant(command, given[0]) or text
                raise UsageError(f"{command[0]}: unexpected {_shown(given[0])}", hint, command)
        elif how in ("some", "many", "rest"):
            if not given and how != "many":
                raise UsageError(f"{command[0]}: {_named(name, text)} is missing", command=command)
            setattr(args, attribute(name), given)
            given = []
        elif given:
            setattr(args, attribute(name), given.pop(0))
        elif how == "optional":
            setattr(args, attribute(name), None)
        else:
            raise UsageError(f"{command[0]}: {_named(name, text)} is missing", command=command)
    if given:
        texts = any(name in ("words", "description", "text", "why") for name, _, _ in command[4])
        told = any(option[2] == "TEXT" and getattr(args, attribute(option[0])) for option in command[5])
        hint = "put a text with blanks into quotes" if texts or told else ""
        raise UsageError(f"{command[0]}: unexpected {_shown(given[0])}", _meant(command, given[0]) or hint, command)


def _is_for_one_id(option: Option) -> bool:
    return option[4] and option[2] == "ID"


def repeated(option: str, *ids: str) -> str:
    """The hint for several ids after an option that takes one."""
    from dibs.errors import quoted

    return f"{option} takes one id, and may be repeated: " + " ".join(f"{option} {quoted(each)}" for each in ids)


def _shown(word: str) -> str:
    """A word of the command line in a message: if it is an address, without its password."""
    from dibs.address import masked

    return repr(masked(word))


def _meant(command: Command, word: str) -> str:
    """A word too many that looks like a board's address was meant for --board."""
    from dibs.address import kind_of, masked

    if kind_of(word) is None and "://" not in word and masked(word) == word:
        return ""
    from shlex import quote

    return f"the board is named by --board: dibs {command[0]} --board {quote(masked(word))}"


def _named(name: str, text: str) -> str:
    return text.partition(":")[0] if name == "words" else f"{name.upper()} ({text})"


def attribute(name: str) -> str:
    plain = name.lstrip("-").replace("-", "_")
    return plain + "_" if plain in ("as", "for") else plain


class _Reader:
    """Reads options, one at a time, into an `Args`."""

    def __init__(self, args: Args, options: tuple[Option, ...], command: Command | None) -> None:
        self.args = args
        self.options = options
        self.command = command

    def option(self, word: str, words: list[str]) -> Option:
        """Read the option `word`; its value may be the first of `words`, which is then taken from them."""
        value: str | None = None
        if word[:2] == "--":
            name, equals, after = word.partition("=")
            if equals:
                value = after
        else:
            name = word[:2]
            if len(word) > 2:
                value = word[2:].removeprefix("=")
        option = self._find(name)
        if option is None:
            self._unknown(name)
        long, _, metavar, kind, many, _ = option
        key = attribute(long)
        if kind == "flag":
            if value is not None and name[:2] != "--":
                # -fa: the rest are further short flags
                words.insert(0, "-" + value)
            elif value is not None:
                raise UsageError(f"{name} takes no value", command=self.command)
            setattr(self.args, key, True)
            return option
        if value is None:
            if not words or (words[0][:1] == "-" and words[0] != "-" and not _is_number(words[0])):
                raise UsageError(
                    f"{name} needs a value: {name} {metavar}",
                    f"a value that starts with a dash is written {long}=VALUE" if words else "",
                    self.command,
                )
            value = words.pop(0)
        if _is_for_one_id(option) and "," in value:
            ids = [part.strip() for part in value.split(",") if part.strip()]
            raise UsageError(f"{name}: {_shown(value)} is not a task id", repeated(long, *ids), self.command)
        checked = self._checked(name, kind, value)
        if many:
            getattr(self.args, key).append(checked)
        elif getattr(self.args, key) is not None:
            raise UsageError(f"{name} is given twice", command=self.command)
        else:
            setattr(self.args, key, checked)
        return option

    def _find(self, name: str) -> Option | None:
        for option in self.options:
            if name == option[0] or (name == option[1] and name):
                return option
        for guess, meant in OPTION_GUESSES:
            if guess == name:
                for option in self.options:
                    if option[0] == meant:
                        return option
        return None

    def _unknown(self, name: str) -> NoReturn:
        from dibs.cli.guessing import closest

        known = [option[0] for option in self.options]
        near = closest(name, known)
        where = f"{self.command[0]}: " if self.command else ""
        hint = f"did you mean {near}?" if near else ""
        if name in ("--worker", "--agent", "--name"):
            hint = "to act under a name: --as NAME"
        elif name[:2] != "--" and not near:
            hint = "a text that starts with a dash goes after --"
        if self.command is None:
            for command in COMMANDS:
                if any(name in option[:2] for option in command[5]):
                    hint = hint or f"options of a command stand after it: dibs {command[0]} {name}"
                    break
        raise UsageError(f"{where}no option {name}", hint, self.command)

    def _checked(self, name: str, kind: str, value: str) -> Any:
        if kind == "text":
            return value
        if kind == "int":
            try:
                if value.isascii() and "_" not in value:
                    return int(value)
            except ValueError:
                pass
            raise UsageError(f"{name}: {_shown(value)} is not a whole number", command=self.command)
        if kind == "seconds":
            length = seconds(value)
            if length is None:
                raise UsageError(
                    f"{name}: {_shown(value)} is not a length of time",
                    "examples: 90s, 30m, 2h, 1h30m, 1d, 1.5",
                    self.command,
                )
            return length
        choices = kind.split("|")
        if value in choices:
            return value
        plain = value.lower().replace("-", "_").replace(" ", "_")
        if plain in choices:
            return plain
        from dibs.cli.guessing import closest

        near = closest(plain, choices)
        hint = (f"did you mean {near}? " if near else "") + "one of: " + ", ".join(choices)
        raise UsageError(f"{name}: {_shown(value)} is not known", hint, self.command)


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def seconds(text: str) -> float | None:
    """`90`, `90s`, `30m`, `1.5h`, `1h30m`, `2d` in seconds; None for anything else."""
    total, number = 0.0, ""
    for character in text.strip().lower():
        if character in "0123456789.":
            number += character
        elif character in _UNITS and _is_number(number):
            total += float(number) * _UNITS[character]
            number = ""
        else:
            return None
    if number:
        if not _is_number(number):
            return None
        total += float(number)
    return total if text.strip() and total < 1e12 else None


def _is_number(text: str) -> bool:
    digits = text.removeprefix("-").replace(".", "", 1)
    return digits.isascii() and digits.isdigit()
