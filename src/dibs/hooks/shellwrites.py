"""The paths that a shell command certainly writes: redirections, and the programs in `_PROGRAMS` below.

    writes("cd src && sed -i s/a/b/ x.py > /tmp/log", "/repo")      ["/tmp/log", "/repo/src/x.py"]

Answers are absolute; an unquoted glob stays in them. What depends on a variable, on another command's output or on
what a program happens to find (`xargs`, `find -delete`, `git apply`, scripts) is left out: a denial must be certain.
A literal `cd` is followed; after any other one, relative paths are left out. Nothing is run, nothing raises.
"""

from __future__ import annotations

import os

from dibs.hooks.patches import paths as patch_paths
from dibs.hooks.shellwords import CLOSE, OPEN, Command, Word, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dibs.hooks.shellwords import Items

    Options = list[tuple[str, Word | None]]

BRACES = 64
"""A word that expands to more than this is left out."""
SHELLS_DEEP = 8
"""Shells started by shells are followed so far."""

_KEYWORDS = ("if", "then", "else", "elif", "while", "until", "do", "!", "{", "}", "time", "coproc")
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")

# Programs that run another one: the letters of their options that take a value, and how many words precede it.
_RUNNERS = {
    "sudo": ("ugpCrtTUhR", 0),
    "doas": ("uC", 0),
    "command": ("", 0),
    "builtin": ("", 0),
    "exec": ("a", 0),
    "nohup": ("", 0),
    "setsid": ("", 0),
    "nice": ("n", 0),
    "ionice": ("cn", 0),
    "stdbuf": ("ioe", 0),
    "timeout": ("ks", 1),
    "env": ("u", 0),
}


def writes(command: str, folder: str) -> list[str]:
    """What the command line `command`, run in `folder`, writes."""
    walk = _Walk(folder)
    walk.items(parse(command))
    return list(dict.fromkeys(walk.found))


def writes_of_words(words: Sequence[str], folder: str) -> list[str]:
    """The same for a program and its arguments, which no shell will read."""
    walk = _Walk(folder)
    walk.program([Word(word, "\0" * len(word)) for word in words], [])
    return list(dict.fromkeys(walk.found))


class _Walk:
    def __init__(self, folder: str) -> None:
        self.folder: str | None = folder
        self.found: list[str] = []
        self.depth = 0

    def items(self, items: Items) -> None:
        outer = []
        for item in items:
            if isinstance(item, Command):
                for word in item.outputs:
                    for made in _expanded(word):
                        self.add(made)
                self.program([made for word in item.words for made in _expanded(word)], item.documents)
            elif item == OPEN:
                outer.append(self.folder)
            elif item == CLOSE and outer:
                self.folder = outer.pop()

    def script(self, text: str) -> None:
        """Another command line, in a shell of its own."""
        if self.depth < SHELLS_DEEP:
            self.depth += 1
            folder = self.folder
            self.items(parse(text))
            self.folder = folder
            self.depth -= 1

    def program(self, words: list[Word], documents: Sequence[str]) -> None:
        words = _past_runners(words)
        if not words or not words[0].sure:
            return
        name = os.path.basename(words[0].text)
        if name in _PROGRAMS:
            _PROGRAMS[name](self, words[1:])
        elif name in _SHELLS:
            self.shell(words[1:], documents)
        elif name == "eval" and all(word.sure for word in words):
            self.script(" ".join(word.text for word in words[1:]))
        elif name in ("apply_patch", "applypatch"):
            for text in documents or [word.text for word in words[1:2] if word.sure]:
                for path in patch_paths(text):
                    self.add(Word(path, "\0" * len(path)))

    def shell(self, words: list[Word], documents: Sequence[str]) -> None:
        operands, options = _split(words, "oO")
        if any(letter == "c" for letter, _ in options):
            if operands and operands[0].sure:
                self.script(operands[0].text)
        elif not operands:
            for text in documents:
                self.script(text)

    # -- what was found

    def place(self, word: Word) -> str | None:
        """Where a word leads, if that is certain."""
        text = word.text
        if not word.sure or not text or "\0" in text:
            return None
        if word.bare[0] == "~":
            if text != "~" and not text.startswith("~/"):
                return None
            text = os.path.expanduser(text)
        if os.path.isabs(text):
            return text
        return None if self.folder is None else os.path.join(self.folder, text)

    def add(self, word: Word) -> None:
        path = self.place(word)
        if path is not None:
            self.found.append(path)

    def add_into(self, target: Word, sources: Sequence[Word], *, is_folder: bool = False) -> None:
        """What copying or moving to a target writes: the target, or entries of it where it is a folder."""
        path = self.place(target)
        if path is None:
            return
        if not (is_folder or len(sources) > 1 or path.endswith("/") or os.path.isdir(path)):
            self.found.append(path)
            return
        for source in sources:
            name = os.path.basename(source.text.rstrip("/"))
            if source.sure and name not in ("", ".", ".."):
                self.found.append(os.path.join(path, name))


# -- words


def _expanded(word: Word) -> list[Word]:
    """A word with its braces written out, and `[^` of shells as `[!` of patterns."""
    if not word.sure or ("{" not in word.bare and "[^" not in word.bare):
        return [word]
    done: list[Word] = []
    pending = [word]
    while pending:
        now = pending.pop()
        if len(done) + len(pending) > BRACES:
            return [Word(word.text, word.bare, sure=False)]
        parts = _alternatives(now.bare)
        if parts is None:
            if "[^" in now.bare:
                at = now.bare.index("[^") + 1
                now = Word(now.text[:at] + "!" + now.text[at + 1 :], now.bare[:at] + "!" + now.bare[at + 1 :])
            done.append(now)
            continue
        start, stop, cuts = parts
        for a, b in reversed(cuts):
            pending.append(
                Word(
                    now.text[:start] + now.text[a:b] + now.text[stop:],
                    now.bare[:start] + now.bare[a:b] + now.bare[stop:],
                )
            )
    return done


def _alternatives(bare: str) -> tuple[int, int, list[tuple[int, int]]] | None:
    """The first `{a,b}`: where it starts and stops, and where its alternatives lie."""
    for start, c in enumerate(bare):
        if c != "{":
            continue
        depth = 0
        cuts = [start]
        for at in range(start, len(bare)):
            if bare[at] == "{":
                depth += 1
            elif bare[at] == "," and depth == 1:
                cuts.append(at)
            elif bare[at] == "}":
                depth -= 1
                if depth == 0:
                    cuts.append(at)
                    if len(cuts) == 2:
                        break  # {a} and {1..9} are not lists
                    return start, at + 1, [(cut + 1, cuts[i]) for i, cut in enumerate(cuts[:-1], 1)]
    return None


def _is_assignment(word: Word) -> bool:
    name, equals, _ = word.bare.partition("=")
    return bool(equals) and name.removesuffix("+").isidentifier()


def _past_runners(words: list[Word]) -> list[Word]:
    """Without keywords, assignments, and programs that only run what follows."""
    while words:
        name = os.path.basename(words[0].text) if words[0].sure else ""
        if words[0].bare in _KEYWORDS or _is_assignment(words[0]):
            words = words[1:]
        elif name in _RUNNERS:
            takes, own = _RUNNERS[name]
            at = 1
            while at < len(words) and words[at].text.startswith("-") and len(words[at].text) > 1:
                option = words[at].text
                if (name, option) in (("command", "-v"), ("command", "-V")) or (name == "env" and option[1] in "SC"):
                    return []
                at += 1
                if option == "--":
                    break
                if len(option) == 2 and option[1] in takes:
                    at += 1
            words = words[at + own :]
        else:
            return words
    return []


def _split(words: Sequence[Word], takes: str = "", longs: Sequence[str] = ()) -> tuple[list[Word], Options]:
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


def _each(takes: str = "", *longs: str) -> Callable[[_Walk, list[Word]], None]:
    """A program that writes all of its operands."""

    def program(walk: _Walk, words: list[Word]) -> None:
        for word in _split(words, takes, longs)[0]:
            walk.add(word)

    return program


def _to_last(takes: str, *longs: str, moves: bool = False, alone: bool = False) -> Callable[[_Walk, list[Word]], None]:
    """A program that writes what its last operand (or -t) names. One that `moves` also writes where it takes from. A
    link to only one comes to stand `alone` in the working directory."""

    def program(walk: _Walk, words: list[Word]) -> None:
        operands, options = _split(words, takes, ("--target-directory", "--suffix", *longs))
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
            walk.add_into(target, operands, is_folder=folder)

    return program


def _cd(walk: _Walk, words: list[Word]) -> None:
    operands = [word for word in words if word.text not in ("-P", "-L", "--")]
    if not operands:
        walk.folder = os.path.expanduser("~")
    elif len(operands) > 1 or operands[0].text == "-" or any(c in operands[0].bare for c in "*?["):
        walk.folder = None
    else:
        walk.folder = walk.place(operands[0])


def _popd(walk: _Walk, words: list[Word]) -> None:
    walk.folder = None


def _sed(walk: _Walk, words: list[Word]) -> None:
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


def _perl(walk: _Walk, words: list[Word]) -> None:
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


def _dd(walk: _Walk, words: list[Word]) -> None:
    for word in words:
        if word.text.startswith("of="):
            walk.add(Word(word.text[3:], word.bare[3:], word.sure))


def _git(walk: _Walk, words: list[Word]) -> None:
    folder = walk.folder
    at = 0
    while at < len(words) and words[at].text.startswith("-"):
        option = words[at].text
        at += 1
        if option == "-C" and at < len(words):
            walk.folder = walk.place(words[at])
            at += 1
        elif option == "-c":
            at += 1
        elif option.startswith(("--git-dir", "--work-tree")):
            walk.folder = None
    if at < len(words) and words[at].sure:
        _git_verb(walk, words[at].text, words[at + 1 :])
    walk.folder = folder


def _git_verb(walk: _Walk, verb: str, words: list[Word]) -> None:
    named = [word.text for word in words]
    if verb == "checkout":
        # Without `--` a word may be a branch, unless no branch could be called so.
        paths = [word for word in words if word.text == "." or word.text.startswith(("./", "../"))]
        found = words[named.index("--") + 1 :] if "--" in named else paths
    elif verb == "restore":
        found, options = _split(words, "sU", ("--source", "--unified", "--inter-hunk-context", "--pathspec-from-file"))
        letters = [letter for letter, _ in options]
        if ("S" in letters or "--staged" in letters) and "W" not in letters and "--worktree" not in letters:
            return  # the index only
    elif verb == "rm":
        found, options = _split(words)
        if any(letter in ("--cached", "--dry-run", "n") for letter, _ in options):
            return
    elif verb == "mv":
        _to_last("", moves=True)(walk, words)
        return
    else:
        return
    for word in found:
        if not word.text.startswith(":"):  # the magic of pathspecs
            walk.add(word)


_PROGRAMS: dict[str, Callable[[_Walk, list[Word]], None]] = {
    "cd": _cd,
    "pushd": _cd,
    "popd": _popd,
    "tee": _each(),
    "rm": _each(),
    "unlink": _each(),
    "shred": _each("ns", "--iterations", "--size"),
    "touch": _each("drt", "--date", "--reference"),
    "truncate": _each("sr", "--size", "--reference"),
    "mv": _to_last("tS", moves=True),
    "cp": _to_last("tS"),
    "install": _to_last("mogtS", "--mode", "--owner", "--group"),
    "ln": _to_last("tS", alone=True),
    "sed": _sed,
    "gsed": _sed,
    "perl": _perl,
    "ruby": _perl,
    "dd": _dd,
    "git": _git,
}
