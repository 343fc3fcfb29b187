"""The paths that a shell command certainly writes: redirections, and the programs in `_PROGRAMS` below.

    writes("cd src && sed -i s/a/b/ x.py > /tmp/log", "/repo")      ["/tmp/log", "/repo/src/x.py"]

Answers are absolute; an unquoted glob stays in them, and a quoted one is written so that it matches itself only. What
depends on a variable, on another command's output or on what a program happens to find (`xargs`, `find -delete`, `git
apply`, scripts) is left out: a denial must be certain. A literal `cd` is followed; where it may fail, both folders
count; after any other `cd`, relative paths are left out. Nothing is run, nothing raises.
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

LONGEST = 1 << 20
"""Longer commands should not be given to this: a hook has little time."""
BRACES = 64
"""A word that expands to more than this is left out."""
BRACES_READ = 1 << 20
"""So many characters of words with braces are looked at, however often; further ones are left out."""
FOLDERS = 8
"""In so many folders a command may be running, for all that is known."""
SHELLS_DEEP = 8
"""Shells started by shells are followed so far."""

_KEYWORDS = ("if", "then", "else", "elif", "while", "until", "do", "!", "{", "}", "coproc")
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")

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
        self.folders = [folder]
        self.fallback: list[str] = []  # where we still are if a `cd` has failed
        self.made: set[str] = set()
        self.found: list[str] = []
        self.depth = 0
        self.braces = BRACES_READ

    def items(self, items: Items) -> None:
        outer = []
        for item in items:
            if isinstance(item, Command):
                self.command(item)
            elif item == OPEN:
                outer.append((self.folders, self.fallback))
            elif item == CLOSE and outer:
                self.folders, self.fallback = outer.pop()

    def command(self, command: Command) -> None:
        first = command.words[0].bare if command.words else ""
        if self.fallback and command.joint == "||" and first in ("exit", "return"):
            self.fallback = []
        if self.fallback and command.joint != "&&" and first not in ("then", "do"):
            self.folders = _distinct(self.folders + self.fallback)[:FOLDERS]
            self.fallback = []
        for word in command.outputs:
            for made in self.expanded(word):
                self.add(made)
        self.program([made for word in command.words for made in self.expanded(word)], command.documents)

    def script(self, text: str) -> None:
        """Another command line, in a shell of its own."""
        if self.depth < SHELLS_DEEP:
            self.depth += 1
            kept = self.folders, self.fallback
            self.fallback = []
            self.items(parse(text))
            self.folders, self.fallback = kept
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
        operands, options = _split(words, "oO", ("--rcfile", "--init-file"))
        letters = [letter for letter, _ in options]
        if "c" in letters:
            if operands and operands[0].sure:
                self.script(operands[0].text)
        elif "s" in letters or not operands or operands[0].text in ("-", "/dev/stdin"):
            for text in documents:
                self.script(text)

    # -- what was found

    def places(self, word: Word) -> list[tuple[str, str]]:
        """Where a word leads, if that is certain but for the folder: as a path, and as a pattern that matches it."""
        text = word.text
        if not word.sure or not text or "\0" in text or len(text) > PATH_LENGTH:
            return []
        if word.bare[0] == "~":
            if text != "~" and not text.startswith("~/"):
                return []
            path = os.path.expanduser(text)
            return [(path, path)] if os.path.isabs(path) else []
        if os.path.isabs(text):
            # A folder above all of this may be called so in earnest; below ours, a quoted glob is a name.
            top = next((folder for folder in self.folders if text.startswith(folder + "/")), None)
            return [(text, text if top is None else top + _literal(word, len(top)))]
        return [(os.path.join(folder, text), os.path.join(folder, _literal(word))) for folder in self.folders]

    def add(self, word: Word) -> None:
        self.found += [pattern for _, pattern in self.places(word)]

    def add_into(
        self, target: Word, sources: Sequence[Word], *, is_folder: bool = False, is_deep: bool = False
    ) -> None:
        """What copying or moving to a target writes: the target, or entries of it where it is a folder. The content of
        a folder (`x/.`) can be anything in the target."""
        for path, pattern in self.places(target):
            if not (is_folder or len(sources) > 1 or path.endswith("/") or os.path.isdir(path)):
                self.found.append(pattern)
                continue
            for source in sources:
                name = os.path.basename(source.text.rstrip("/"))
                if source.sure and name not in ("", ".", ".."):
                    self.found.append(os.path.join(pattern, name))
                elif source.sure and is_deep:
                    self.found.append(pattern)

    # -- words

    def expanded(self, word: Word) -> list[Word]:
        """A word with its braces written out, and `[^` of shells as `[!` of patterns."""
        if not word.sure or ("{" not in word.bare and "[^" not in word.bare):
            return [word]
        done: list[Word] = []
        pending = [word]
        while pending:
            now = pending.pop()
            self.braces -= len(now.bare)
            if len(done) + len(pending) > BRACES or len(now.bare) > PATH_LENGTH or self.braces < 0:
                return [Word(word.text, word.bare, sure=False)]
            parts = _alternatives(now)
            if parts is None:
                if "[^" in now.bare:
                    at = now.bare.index("[^") + 1
                    now = Word(now.text[:at] + "!" + now.text[at + 1 :], now.bare[:at] + "!" + now.bare[at + 1 :])
                done.append(now)
                continue
            start, stop, middles = parts
            if len(middles) > BRACES:
                return [Word(word.text, word.bare, sure=False)]
            for text, bare in reversed(middles):
                pending.append(
                    Word(now.text[:start] + text + now.text[stop:], now.bare[:start] + bare + now.bare[stop:])
                )
        return done


PATH_LENGTH = 4096
"""No path is longer, so no such word is one."""


def _distinct(texts: list[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _literal(word: Word, start: int = 0) -> str:
    """The text from `start` on as a pattern in which what was quoted matches itself."""
    text, bare = word.text[start:], word.bare[start:]
    if "\0" not in bare or not ("*" in text or "?" in text):
        return text
    return "".join(f"[{c}]" if c in "*?" and b == "\0" else c for c, b in zip(text, bare, strict=True))


def _alternatives(word: Word) -> tuple[int, int, list[tuple[str, str]]] | None:
    """The first `{a,b}` or `{a..b}`: where it starts and stops, and what may stand there, as text and bare."""
    text, bare = word.text, word.bare
    best: tuple[int, int, list[tuple[str, str]]] | None = None
    opened: list[list[int]] = []  # for each brace that is open, where it and its commas are
    for at, c in enumerate(bare):
        if c == "{":
            opened.append([at])
        elif c == "," and opened:
            opened[-1].append(at)
        elif c == "}" and opened:
            cuts = [*opened.pop(), at]
            if best is not None and best[0] < cuts[0]:
                continue
            if len(cuts) > 2:
                spans = [(cut + 1, cuts[i]) for i, cut in enumerate(cuts[:-1], 1)]
                best = cuts[0], at + 1, [(text[a:b], bare[a:b]) for a, b in spans]
            elif made := _range(bare[cuts[0] + 1 : at]):
                best = cuts[0], at + 1, [(item, item) for item in made]
    return best


def _range(inside: str) -> list[str]:
    """`1..9`, `01..10..2`, `a..e`; nothing if it is none of these, and no more than are of use."""
    ends = inside.split("..")
    if len(ends) not in (2, 3) or len(inside) > 40:
        return []
    try:
        step = abs(int(ends[2])) or 1 if len(ends) == 3 else 1
        if all(len(end) == 1 and end.isascii() and end.isalpha() for end in ends[:2]):
            first, last = map(ord, ends[:2])
            return [chr(code) for code in _between(first, last, step)]
        first, last = int(ends[0]), int(ends[1])
    except ValueError:
        return []
    padded = any(end.lstrip("-").startswith("0") and len(end.lstrip("-")) > 1 for end in ends[:2])
    width = max(map(len, ends[:2])) if padded else 0
    return [f"{number:0{width}d}" for number in _between(first, last, step)]


def _between(first: int, last: int, step: int) -> Sequence[int]:
    numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    return numbers[: BRACES + 1]


def _is_assignment(word: Word) -> bool:
    name, equals, _ = word.bare.partition("=")
    return bool(equals) and name.removesuffix("+").isidentifier()


def _past_runners(words: list[Word]) -> list[Word]:
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
            is_deep = any(name in ("r", "R", "a", "--recursive", "--archive") for name in named)
            walk.add_into(target, operands, is_folder=folder, is_deep=is_deep)

    return program


def _cd(walk: _Walk, words: list[Word]) -> None:
    operands = [word for word in words if word.text not in ("-P", "-L", "-e", "--")]
    before = walk.folders
    if not operands:
        walk.folders = [os.path.expanduser("~")]
    elif len(operands) > 1 or operands[0].text == "-" or any(c in operands[0].bare for c in "*?["):
        walk.folders = []
    else:
        there = [path for path, _ in walk.places(operands[0]) if len(path) <= PATH_LENGTH]
        walk.folders = there
        if not all(path in walk.made or os.path.isdir(path) for path in there):
            walk.fallback = _distinct(walk.fallback + before)[:FOLDERS]


def _popd(walk: _Walk, words: list[Word]) -> None:
    walk.folders = []


def _mkdir(walk: _Walk, words: list[Word]) -> None:
    for word in _split(words, "m", ("--mode",))[0]:
        walk.made.update(path for path, _ in walk.places(word))


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
    folders = walk.folders
    tree: list[str] | None = None
    at = 0
    while at < len(words) and words[at].text.startswith("-"):
        word = words[at]
        at += 1
        option, equals, _ = word.text.partition("=")
        if option in ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env") and not equals:
            if at == len(words):
                break
            value = words[at]
            at += 1
        else:
            value = Word(word.text[len(option) + 1 :], word.bare[len(option) + 1 :], word.sure)
        if option == "-C":
            walk.folders = [path for path, _ in walk.places(value)]
        elif option == "--work-tree":
            tree = [path for path, _ in walk.places(value)]
    if tree is not None:  # from outside, git goes to its top first
        inside = [here for here in walk.folders if any(os.path.join(here, "").startswith(f"{top}/") for top in tree)]
        walk.folders = inside or tree
    if at < len(words) and words[at].sure:
        _git_verb(walk, words[at].text, words[at + 1 :], tree)
    walk.folders = folders


def _git_verb(walk: _Walk, verb: str, words: list[Word], tree: list[str] | None) -> None:
    if verb == "checkout":
        found = _git_checkout(walk, words)
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
        _git_path(walk, word, tree)


def _git_checkout(walk: _Walk, words: list[Word]) -> list[Word]:
    named = [word.text for word in words]
    if "--" in named:
        return words[named.index("--") + 1 :]
    found, options = _split(words, "bB", ("--orphan", "--conflict", "--pathspec-from-file"))
    if any(letter in ("b", "B", "--orphan") for letter, _ in options):
        return []
    # Without `--` a word may be a branch, unless no branch could be called so. One alone that is both is a branch to
    # git; among several it wants none that is both.
    if len(found) == 1 and any(_is_branch(folder, found[0].text) for folder in walk.folders):
        return []
    return [
        word
        for word in found
        if word.text == "."
        or word.text.startswith(("./", "../", ":"))
        or any(c in word.text for c in "*?[")
        or any(os.path.lexists(path) for path, _ in walk.places(word))
    ]


def _git_path(walk: _Walk, word: Word, tree: list[str] | None) -> None:
    """A pathspec, in which a glob is one even if the shell was kept from it. `:/x` and `:(top)x` start at the root."""
    text = word.text
    if not text.startswith(":"):
        walk.add(Word(text, word.bare if word.bare.startswith("~") else text, word.sure))
        return
    if text.startswith(":/"):
        text = text[2:]
    elif text.startswith(":(top)"):
        text = text[len(":(top)") :]
    else:
        return  # other magic
    here = walk.folders
    walk.folders = _distinct([root for folder in here for root in (tree or _root(folder))])
    walk.add(Word(text or ".", sure=word.sure))
    walk.folders = here


def _is_branch(folder: str, name: str) -> bool:
    from dibs.places import find_place

    common = find_place(folder).common
    if common is None or "\0" in name:
        return False
    if os.path.isfile(os.path.join(common, "refs", "heads", name)):
        return True
    try:
        with open(os.path.join(common, "packed-refs"), "rb") as file:
            return os.fsencode(f" refs/heads/{name}\n") in file.read(1 << 24)
    except (OSError, ValueError):
        return False


def _root(folder: str) -> list[str]:
    from dibs.places import find_place

    root = find_place(folder).worktree
    return [] if root is None else [root]


_PROGRAMS: dict[str, Callable[[_Walk, list[Word]], None]] = {
    "cd": _cd,
    "pushd": _cd,
    "popd": _popd,
    "mkdir": _mkdir,
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
