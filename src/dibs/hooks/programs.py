"""Ordinary programs: which of their words they write, and which of them only run another one.

    PROGRAMS["sed"](walk, words)    adds to the walk what `sed` with these arguments certainly writes
    past_runners(words)             `sudo -u x env A=1 sed …` without what stands before `sed`
    split(words, "tS", longs)       a program's operands, and its options with their values

Each is written for what its manual says; what is not understood writes nothing. Nothing is run, nothing raises.
"""

from __future__ import annotations

import os

from dibs.hooks.shellwords import Word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dibs.hooks.shellwrites import Walk

    Options = list[tuple[str, Word | None]]
    Program = Callable[[Walk, list[Word]], None]

_KEYWORDS = ("if", "then", "else", "elif", "while", "until", "do", "!", "{", "}", "coproc")

# Programs that run another one: the letters of their options that take a value, how many words precede it, and the
# long options that take a value. With one of `_ELSEWHERE` nobody knows where, or what, it runs.
_RUNNERS: dict[str, tuple[str, int, tuple[str, ...]]] = {
    "sudo": ("ugpCrtTUhR", 0, ("--user", "--group", "--prompt", "--host", "--other-user", "--role", "--type")),
    "doas": ("uC", 0, ()),
    "command": ("", 0, ()),
    "builtin": ("", 0, ()),
    "exec": ("a", 0, ()),
    "nohup": ("", 0, ()),
    "setsid": ("", 0, ()),
    "nice": ("n", 0, ("--adjustment",)),
    "ionice": ("cn", 0, ("--class", "--classdata")),
    "stdbuf": ("ioe", 0, ("--input", "--output", "--error")),
    "time": ("fo", 0, ("--format", "--output")),
    "timeout": ("ks", 1, ("--kill-after", "--signal")),
    "env": ("u", 0, ("--unset",)),
}
_ELSEWHERE = {
    "command": ("-v", "-V"),
    "env": ("-S", "-C", "--split-string", "--chdir"),
    "sudo": ("-D", "-R", "--chdir", "--chroot"),
}


def _is_assignment(word: Word) -> bool:
    name, equals, _ = word.bare.partition("=")
    return bool(equals) and name.removesuffix("+").isidentifier()


def past_runners(words: list[Word]) -> list[Word]:
    """Without keywords, assignments, and programs that only run what follows."""
    at = 0
    while at < len(words):
        word = words[at]
        name = os.path.basename(word.text) if word.sure else ""
        if word.bare in _KEYWORDS or _is_assignment(word):
            at += 1
        elif word.bare == "function":  # its name follows, and its body
            at += 2
        elif name in _RUNNERS:
            takes, own, longs = _RUNNERS[name]
            at += 1
            while at < len(words) and words[at].text.startswith("-") and len(words[at].text) > 1:
                option = words[at].text
                if _leads_elsewhere(name, option):
                    return []
                at += 1
                if option == "--":
                    break
                if option in longs or (len(option) == 2 and option[1] in takes):
                    at += 1
            at += own
        else:
            return words[at:]
    return []


def _leads_elsewhere(name: str, option: str) -> bool:
    given = option.partition("=")[0] if option.startswith("--") else option[:2]
    return given in _ELSEWHERE.get(name, ())


def split(words: Sequence[Word], takes: str = "", longs: Sequence[str] = ()) -> tuple[list[Word], Options]:
    """Operands and options of a program. Letters in `takes`, and `longs`, take a value: attached, or the next word."""
    operands: list[Word] = []
    options: Options = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        text = word.text
        if text == "--":
            operands += words[at:]
            break
        if not text.startswith("-") or text == "-":
            operands.append(word)
        elif text.startswith("--"):
            name, equals, _ = text.partition("=")
            if equals:
                options.append((name, Word(text[len(name) + 1 :], word.bare[len(name) + 1 :], word.sure)))
            elif name in longs:
                options.append((name, words[at] if at < len(words) else None))
                at += 1
            else:
                options.append((name, None))
        else:
            for place, letter in enumerate(text[1:], 2):
                if letter not in takes:
                    options.append((letter, None))
                    continue
                attached = Word(text[place:], word.bare[place:], word.sure)
                if not attached.text:
                    attached = words[at] if at < len(words) else attached
                    at += 1
                options.append((letter, attached))
                break
    return operands, options


# -- programs


def _each(takes: str = "", *longs: str) -> Program:
    """A program that writes all of its operands."""

    def program(walk: Walk, words: list[Word]) -> None:
        for word in split(words, takes, longs)[0]:
            walk.add(word)

    return program


def to_last(takes: str, *longs: str, moves: bool = False, alone: bool = False) -> Program:
    """A program that writes what its last operand (or -t) names. One that `moves` also writes where it takes from. A
    link to only one comes to stand `alone` in the working directory."""

    def program(walk: Walk, words: list[Word]) -> None:
        operands, options = split(words, takes, ("--target-directory", "--suffix", *longs))
        named = [letter for letter, _ in options]
        if ("d" in named or "--directory" in named) and takes.startswith("m"):
            return  # install -d makes folders
        target = next((value for letter, value in options if letter in ("t", "--target-directory") and value), None)
        folder = target is not None
        if target is None:
            if alone and len(operands) == 1:
                operands.append(Word("./"))
            if len(operands) < 2:
                return
            target = operands.pop()
        if moves:
            for word in operands:
                walk.add(word)
        if "T" in named or "--no-target-directory" in named:
            walk.add(target)
        else:
            is_deep = any(name in ("r", "R", "a", "--recursive", "--archive") for name in named)
            walk.add_into(target, operands, is_folder=folder, is_deep=is_deep)

    return program


def _mkdir(walk: Walk, words: list[Word]) -> None:
    for word in split(words, "m", ("--mode",))[0]:
        walk.made.update(path for path, _ in walk.places(word))


def _sed(walk: Walk, words: list[Word]) -> None:
    scripts = in_place = False
    operands: list[Word] = []
    at = 0
    while at < len(words):
        text = words[at].text
        at += 1
        if text == "--":
            operands += words[at:]
            break
        if text.startswith("--"):
            name, equals, _ = text.partition("=")
            in_place = in_place or name == "--in-place"
            if name in ("--expression", "--file"):
                scripts = True
                at += not equals
        elif text.startswith("-") and text != "-":
            for place, letter in enumerate(text[1:], 2):
                if letter == "i" or (letter == "I" and place == 2):
                    in_place = True
                    if place == len(text) and at < len(words) and not words[at].text and words[at].sure:
                        at += 1  # BSD: the suffix is a word of its own, most often an empty one
                    break
                if letter in "efl":
                    scripts = scripts or letter != "l"
                    at += place == len(text)
                    break
        else:
            operands.append(words[at - 1])
    if in_place:
        for word in operands if scripts else operands[1:]:
            walk.add(word)


def _perl(walk: Walk, words: list[Word]) -> None:
    code = in_place = False
    at = 0
    while at < len(words) and words[at].text.startswith("-") and len(words[at].text) > 1:
        text = words[at].text
        at += 1
        if text == "--":
            break
        for place, letter in enumerate(text[1:], 2):
            if letter == "i":
                in_place = True
                break  # the rest is the suffix
            if letter in "eE":
                code = True
                at += place == len(text)
                break
            if letter in "IMmxCDFVd":
                at += place == len(text) and letter in "IM"
                break
    if in_place:
        for word in words[at if code else at + 1 :]:
            walk.add(word)


def _dd(walk: Walk, words: list[Word]) -> None:
    for word in words:
        if word.text.startswith("of="):
            walk.add(Word(word.text[3:], word.bare[3:], word.sure))


PROGRAMS: dict[str, Program] = {
    "mkdir": _mkdir,
    "tee": _each(),
    "rm": _each(),
    "unlink": _each(),
    "shred": _each("ns", "--iterations", "--size"),
    "touch": _each("drt", "--date", "--reference"),
    "truncate": _each("sr", "--size", "--reference"),
    "mv": to_last("tS", moves=True),
    "cp": to_last("tS"),
    "install": to_last("mogtS", "--mode", "--owner", "--group"),
    "ln": to_last("tS", alone=True),
    "sed": _sed,
    "gsed": _sed,
    "perl": _perl,
    "ruby": _perl,
    "dd": _dd,
}
