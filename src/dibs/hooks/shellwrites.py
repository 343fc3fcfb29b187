"""The paths that a shell command certainly writes: redirections, and what `programs` and `gitwrites` know.

    writes("cd src && sed -i s/a/b/ x.py > /tmp/log", "/repo")      ["/tmp/log", "/repo/src/x.py"]

Answers are absolute; an unquoted glob stays in them, and a quoted one is written so that it matches itself only. What
depends on a variable, on another command's output or on what a program happens to find (`xargs`, `find -delete`, `git
apply`, scripts) is left out: a denial must be certain. A literal `cd` is followed; where it may fail, both folders
count; after any other `cd`, relative paths are left out. `look` also says that something was left out, but for what
programs find. Nothing is run, nothing raises.
"""

from __future__ import annotations

import os

from dibs.hooks.patches import paths as patch_paths
from dibs.hooks.programs import PROGRAMS, past_runners, split
from dibs.hooks.shellwords import CLOSE, OPEN, UNREAD, Command, Word, parse
from dibs.rules.paths import BRACES, alternatives

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.hooks.shellwords import Items

LONGEST = 1 << 20
"""Longer commands should not be given to this: a hook has little time."""
BRACES_READ = 1 << 20
"""So many characters of words with braces are looked at, however often; further ones are left out."""
PATH_LENGTH = 4096
"""No path is longer, so no such word is one."""
FOLDERS = 8
"""In so many folders a command may be running, for all that is known."""
SHELLS_DEEP = 8
"""Shells started by shells are followed so far."""

_FOLDER = "it writes in a folder that cannot be known from the command; write that folder out"
_NESTED = "it is nested too deeply to look for what it writes; give it in parts"
_VARIABLE = "it writes to what only a variable or another command names; write the path out"
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")


def writes(command: str | Sequence[str], folder: str) -> list[str]:
    """What a command, run in `folder`, writes."""
    return _distinct(look(command, folder).found)


def look(command: str | Sequence[str], folder: str) -> Walk:
    """The same with what is in doubt. The command is a line for a shell, or a program and its arguments."""
    walk = Walk(folder)
    if isinstance(command, str):
        walk.items(parse(command))
    else:
        walk.program([Word(word, "\0" * len(word)) for word in command], [])
    return walk


class Walk:
    def __init__(self, folder: str) -> None:
        self.folders = [folder]
        self.fallback: list[str] = []  # where we still are if a `cd` has failed
        self.made: set[str] = set()
        self.found: list[str] = []
        self.doubt = ""
        """Why it may write more than was found."""
        self.unnamed = ""
        """The same for what is all the same to most: scripts keep the names of many files in variables."""
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
            elif item == UNREAD:
                self.doubt = _NESTED

    def command(self, command: Command) -> None:
        first = command.words[0].bare if command.words else ""
        if self.fallback and command.joint == "||" and first in ("exit", "return"):
            self.fallback = []
        if self.fallback and command.joint != "&&" and first not in ("then", "do"):
            self.folders = self.few(self.folders + self.fallback)
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
        else:
            self.doubt = _NESTED

    def program(self, words: list[Word], documents: Sequence[str]) -> None:
        words = past_runners(words)
        if not words or not words[0].sure:
            return
        name = os.path.basename(words[0].text)
        if name in PROGRAMS:
            PROGRAMS[name](self, words[1:])
        elif name == "git":
            from dibs.hooks.gitwrites import git

            git(self, words[1:])
        elif name in ("cd", "pushd"):
            self.cd(words[1:])
        elif name == "popd":
            self.folders = []
        elif name in _SHELLS:
            self.shell(words[1:], documents)
        elif name == "eval":
            if all(word.sure for word in words):
                self.script(" ".join(word.text for word in words[1:]))
            else:
                self.unnamed = _VARIABLE
        elif name in ("apply_patch", "applypatch"):
            for text in documents or [word.text for word in words[1:2] if word.sure]:
                for path in patch_paths(text):
                    self.add(Word(path, "\0" * len(path)))

    def shell(self, words: list[Word], documents: Sequence[str]) -> None:
        operands, options = split(words, "oO", ("--rcfile", "--init-file"))
        letters = [letter for letter, _ in options]
        if "c" in letters:
            if operands and operands[0].sure:
                self.script(operands[0].text)
            elif operands:
                self.unnamed = _VARIABLE
        elif "s" in letters or not operands or operands[0].text in ("-", "/dev/stdin"):
            for text in documents:
                self.script(text)

    def cd(self, words: list[Word]) -> None:
        operands = [word for word in words if word.text not in ("-P", "-L", "-e", "--")]
        before = self.folders
        if not operands:
            self.folders = [os.path.expanduser("~")]
        elif len(operands) > 1 or operands[0].text == "-" or any(c in operands[0].bare for c in "*?["):
            self.folders = []
        else:
            there = [path for path, _ in self.places(operands[0]) if len(path) <= PATH_LENGTH]
            self.folders = there
            if not all(path in self.made or os.path.isdir(path) for path in there):
                self.fallback = self.few(self.fallback + before)

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
        found = self.places(word)
        self.found += [pattern for _, pattern in found]
        if not found:
            self.miss(word)

    def miss(self, word: Word) -> None:
        """Note that a word is written to, if it is a path at all, and nobody knows where."""
        if not word.sure or word.bare[:1] == "~":
            self.unnamed = _VARIABLE
        elif word.text and "\0" not in word.text and len(word.text) <= PATH_LENGTH:
            self.doubt = _FOLDER

    def few(self, folders: list[str]) -> list[str]:
        found = _distinct(folders)
        if len(found) > FOLDERS:
            self.doubt = _FOLDER
        return found[:FOLDERS]

    def add_into(
        self, target: Word, sources: Sequence[Word], *, is_folder: bool = False, is_deep: bool = False
    ) -> None:
        """What copying or moving to a target writes: the target, or entries of it where it is a folder. The content of
        a folder (`x/.`) can be anything in the target."""
        found = self.places(target)
        if not found:
            self.miss(target)
        for path, pattern in found:
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
            parts = alternatives(now.text, now.bare)
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


def _distinct(texts: list[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _literal(word: Word, start: int = 0) -> str:
    """The text from `start` on as a pattern in which what was quoted matches itself."""
    text, bare = word.text[start:], word.bare[start:]
    if "\0" not in bare or not ("*" in text or "?" in text):
        return text
    return "".join(f"[{c}]" if c in "*?" and b == "\0" else c for c, b in zip(text, bare, strict=True))
