"""A shell command line taken apart: simple commands with their words, redirections and here-documents, in order.

    for item in parse("cd src && sed -i s/a/b/ x.py > /dev/null"): ...

An item is a `Command`, or OPEN and CLOSE around what runs in a shell of its own (`( … )`, `$( … )`, backticks), or
UNREAD where the rest was given up.
This knows just enough of POSIX sh and bash to find words and where they end; it expands nothing. A word with an
expansion in it is not `sure`. Keywords are words like any other. It reads any text to its end, in time that grows with
its length and no faster, never raises, and gives up (returning what it has) on text nested deeper than `DEEPEST`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    Items = list["Command | str"]

OPEN, CLOSE, UNREAD = "(", ")", "…"
DEEPEST = 40
LONGEST_ARITHMETIC = 1 << 16
"""So far the end of a `((` is looked for, before it is taken for two shells."""

_ENDS = frozenset(" \t\r\n;&|()<>")
_SPECIAL = _ENDS | frozenset("\\'\"$`")
_QUOTED = "\0"


class Word:
    """One word after quote removal. `bare` is as long as `text`, with a NUL for each character that was quoted."""

    __slots__ = ("bare", "sure", "text")

    def __init__(self, text: str = "", bare: str | None = None, sure: bool = True) -> None:
        self.text = text
        self.bare = text if bare is None else bare
        self.sure = sure


class Command:
    """A simple command: its words, the words that output is redirected to, and the here-documents it is fed. `joint` is
    the operator before it; `is_open` while nothing but keywords was read, so that a command can still begin."""

    __slots__ = ("documents", "is_open", "joint", "outputs", "words")

    def __init__(self) -> None:
        self.words: list[Word] = []
        self.outputs: list[Word] = []
        self.documents: list[str] = []
        self.joint = ""
        self.is_open = True


class _Draft:
    """A word in the making: pieces, so that a long one is not copied again and again."""

    __slots__ = ("bares", "sure", "texts")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.bares: list[str] = []
        self.sure = True

    def plain(self, text: str) -> None:
        self.texts.append(text)
        self.bares.append(text)

    def quote(self, text: str) -> None:
        self.texts.append(text)
        self.bares.append(_QUOTED * len(text))

    def done(self) -> Word:
        return Word("".join(self.texts), "".join(self.bares), self.sure)


def parse(text: str) -> Items:
    scanner = _Scanner(text)
    while scanner.at < scanner.end:  # a `)` too many ends a list, not the text
        scanner.list()
    return scanner.items


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.end = len(text)
        self.depth = 0
        self.joint = ""
        self.items: Items = []
        self.awaited: list[tuple[Command, Word, bool]] = []

    def list(self) -> None:
        """Commands up to the `)` that closes this list, or to the end."""
        text = self.text
        command = Command()
        after = -1  # where the last word ended: `a(` is not `a (`
        while self.at < self.end:
            c = text[self.at]
            if c in " \t\r":
                self.at += 1
            elif c in "<>" or text.startswith("&>", self.at):
                self.redirection(command)
            elif c in "\n;&|":
                command = self.operator(command, c)
            elif c == ")":
                self.at += 1
                break
            elif c == "(":
                command = self.parenthesis(command, after)
            elif c == "#":
                self.at = self.find("\n")
            elif text.startswith("\\\n", self.at):
                self.at += 2
            else:
                self.next_word(command)
                after = self.at
        self.finish(command)
        if self.at >= self.end:
            self.here_documents()

    def operator(self, command: Command, c: str) -> Command:
        is_double = self.text.startswith(c * 2, self.at) and c != "\n"
        self.at += 1 + is_double
        after = self.finish(command)
        if c != "\n" or after is not command or self.joint not in ("&&", "||", "|"):  # a line may end in an operator
            self.joint = c * 2 if is_double else c
        if c == "\n":
            self.here_documents()
        return after

    def finish(self, command: Command) -> Command:
        if command.words or command.outputs or command.documents:
            command.joint = self.joint
            self.items.append(command)
            return Command()
        return command

    def find(self, what: str) -> int:
        at = self.text.find(what, self.at)
        return self.end if at < 0 else at

    def nested(self) -> None:
        """The list after a `(`, as a shell of its own."""
        if not self.deeper():
            return
        joint = self.joint
        self.items.append(OPEN)
        self.list()
        self.items.append(CLOSE)
        self.joint = joint
        self.depth -= 1

    def deeper(self) -> bool:
        if self.depth >= DEEPEST:
            self.at = self.end
            self.items.append(UNREAD)
            return False
        self.depth += 1
        return True

    def parenthesis(self, command: Command, after: int) -> Command:
        start = self.at
        self.at += 1
        first = command.words[0].bare if command.words else ""
        if command.is_open or (first == "for" and len(command.words) == 1):
            if self.text.startswith("((", start) and self.is_arithmetic():  # its > compares
                self.arithmetic()
                return command if command.is_open else Command()
            command.words.clear()
            self.nested()
            self.joint = ")"
            return command
        if first == "case" and command.words[-1].bare == "in":  # the first pattern: what follows is a command
            self.balance("(", ")")
            return self.finish(command)
        if self.text[self.at : self.at + 20].lstrip().startswith(")"):  # `name()`: the body follows as a list
            self.at = self.find(")") + 1
            return Command()
        if after == start:  # an array, or a pattern such as @(a|b)
            command.words[-1].sure = False
        self.balance("(", ")")
        return command

    def is_arithmetic(self) -> bool:
        """Does the `((` whose first half is behind us close with `))`? Otherwise it opens two shells."""
        text, at, depth = self.text, self.at + 1, 1
        end = min(self.end, at + LONGEST_ARITHMETIC)
        while at < end:
            c = text[at]
            at += 1
            if c == "\\":
                at += 1
            elif c in "'\"":
                while at < end and text[at] != c:
                    at += 2 if c == '"' and text[at] == "\\" else 1
                at += 1
            elif c == "(":
                depth += 1
            elif c == ")":
                depth -= 1
                if not depth:
                    return text.startswith(")", at)
        return False

    def arithmetic(self) -> None:
        self.at += 1
        self.balance("(", ")")
        self.at = min(self.at + 1, self.end)

    def balance(self, opening: str, closing: str, *, singles: bool = True) -> None:
        """Past the bracket that closes the one just read, and through the substitutions on the way. Quotes hide
        brackets; single ones only where they quote at all."""
        if not self.deeper():
            return
        depth = 1
        aside = _Draft()
        while self.at < self.end and depth:
            c = self.text[self.at]
            self.at += 1
            if c == "\\":
                self.at += 1
            elif c == "'" and singles:
                self.at = self.find("'") + 1
            elif c == '"':
                self.double(aside)
            elif c == "`":
                self.backticks(aside)
            elif c == "$":
                self.dollar(aside, quoted=not singles)
            elif c == opening:
                depth += 1
            elif c == closing:
                depth -= 1
        self.at = min(self.at, self.end)
        self.depth -= 1

    # -- redirections

    def redirection(self, command: Command) -> None:
        text = self.text
        operator = next(op for op in _OPERATORS if text.startswith(op, self.at))
        self.at += len(operator)
        if operator in ("<(", ">("):
            self.nested()
            command.words.append(Word(sure=False))
            return
        while self.at < self.end and (text[self.at] in " \t\r" or text.startswith("\\\n", self.at)):
            self.at += 1 if text[self.at] != "\\" else 2
        if self.at >= self.end or text[self.at] in _ENDS:
            return
        word = self.word()
        if operator in ("<<", "<<-"):
            self.awaited.append((command, word, operator == "<<-"))
        elif operator == "<<<":
            if word.sure:
                command.documents.append(word.text)
        elif operator in _WRITING or (operator == ">&" and not word.text.rstrip("-").isdigit() and word.text != "-"):
            command.outputs.append(word)

    def here_documents(self) -> None:
        for command, delimiter, tabs in self.awaited:
            lines = []
            while self.at < self.end:
                stop = self.find("\n")
                line = self.text[self.at : stop]
                self.at = min(stop + 1, self.end)
                if tabs:
                    line = line.lstrip("\t")
                if line == delimiter.text:
                    break
                lines.append(line)
            body = "\n".join(lines)
            command.documents.append(body)
            if _QUOTED not in delimiter.bare and ("$" in body or "`" in body):
                self.substitutions(body)
        self.awaited.clear()

    def substitutions(self, body: str) -> None:
        """What runs because a here-document is expanded."""
        inner = _Scanner(body)
        inner.depth = self.depth
        inner.joint = "&&"
        aside = _Draft()
        while inner.at < inner.end:
            c = body[inner.at]
            inner.at += 1
            if c == "\\":
                inner.at += 1
            elif c == "$":
                inner.dollar(aside, quoted=True)
            elif c == "`":
                inner.backticks(aside)
        self.items += inner.items

    # -- words

    def next_word(self, command: Command) -> None:
        word = self.word()
        follows = self.text[self.at : self.at + 1]
        if follows and follows in "<>" and (word.bare.isdigit() or (word.bare[:1] + word.bare[-1:]) == "{}"):
            return  # the descriptor of a redirection
        if word.bare == "[[" and command.is_open:
            self.condition()
            return
        command.words.append(word)
        command.is_open = command.is_open and word.bare in _BEFORE_A_COMMAND

    def condition(self) -> None:
        """Past the `]]`: inside, a > compares."""
        while self.at < self.end:
            if self.text[self.at] in _ENDS:
                self.at += 1
            elif self.word().bare == "]]":
                return

    def word(self) -> Word:
        text = self.text
        piece = self.plain()
        if self.at >= self.end or text[self.at] in _ENDS:
            return Word(piece)
        made = _Draft()
        made.plain(piece)
        while self.at < self.end:
            c = text[self.at]
            if c in _ENDS:
                break
            if c not in _SPECIAL:
                made.plain(self.plain())
                continue
            self.at += 1
            if c == "\\":
                if text[self.at : self.at + 1] != "\n":
                    made.quote(text[self.at : self.at + 1])
                self.at = min(self.at + 1, self.end)
            elif c == "'":
                self.single(made)
            elif c == '"':
                self.double(made)
            elif c == "`":
                self.backticks(made)
            else:
                self.dollar(made)
        return made.done()

    def plain(self) -> str:
        """The characters up to one that means something."""
        text, start = self.text, self.at
        stop = start
        while stop < self.end and text[stop] not in _SPECIAL:
            stop += 1
        self.at = stop
        return text[start:stop]

    def single(self, made: _Draft) -> None:
        stop = self.find("'")
        made.sure = made.sure and stop < self.end
        made.quote(self.text[self.at : stop])
        self.at = min(stop + 1, self.end)

    def double(self, made: _Draft) -> None:
        text = self.text
        while self.at < self.end:
            c = text[self.at]
            self.at += 1
            if c == '"':
                return
            if c == "\\":
                escaped = text[self.at : self.at + 1]
                if escaped != "\n":
                    made.quote(escaped if escaped in ('"', "\\", "$", "`") else "\\" + escaped)
                self.at = min(self.at + 1, self.end)
            elif c == "`":
                self.backticks(made)
            elif c == "$":
                self.dollar(made, quoted=True)
            else:
                stop = self.at
                while stop < self.end and text[stop] not in '"\\$`':
                    stop += 1
                made.quote(text[self.at - 1 : stop])
                self.at = stop
        made.sure = False  # never closed

    def backticks(self, made: _Draft) -> None:
        made.sure = False
        inside = []
        while self.at < self.end and self.text[self.at] != "`":
            if self.text[self.at] == "\\":
                self.at += 1
            inside.append(self.text[self.at : self.at + 1])
            self.at += 1
        self.at = min(self.at + 1, self.end)
        inner = _Scanner("".join(inside))
        inner.depth = self.depth
        inner.joint = self.joint
        inner.nested()
        self.items += inner.items

    def dollar(self, made: _Draft, quoted: bool = False) -> None:
        c = self.text[self.at : self.at + 1]
        if c == "'" and not quoted:
            self.at += 1
            self.ansi(made)
            return
        if c == '"' and not quoted:
            self.at += 1
            self.double(made)
            return
        if c == "(":
            made.sure = False
            self.at += 1
            if self.text.startswith("(", self.at) and self.is_arithmetic():
                self.arithmetic()
            else:
                self.nested()
        elif c == "{":
            made.sure = False
            self.at += 1
            self.balance("{", "}", singles=not quoted or self.takes_pattern())
        elif c and (c.isalnum() or c in "_@*#?$!-"):
            made.sure = False
            self.at += 1
            if c.isalpha() or c == "_":
                while self.at < self.end and (self.text[self.at].isalnum() or self.text[self.at] == "_"):
                    self.at += 1
        else:
            made.quote("$")

    def takes_pattern(self) -> bool:
        """Is this ${NAME%…} or the like, where single quotes quote even inside double ones?"""
        at = self.at
        while at < self.end and (self.text[at].isalnum() or self.text[at] in "_!@*"):
            at += 1
        return at > self.at and self.text[at : at + 1] in ("#", "%", "/", "^", ",")

    def ansi(self, made: _Draft) -> None:
        """The inside of $'…', where a backslash can hide the quote."""
        text = self.text
        while self.at < self.end:
            c = text[self.at]
            self.at += 1
            if c == "'":
                return
            if c == "\\":
                self.escape(made)
                continue
            stop = self.at
            while stop < self.end and text[stop] not in "'\\":
                stop += 1
            made.quote(text[self.at - 1 : stop])
            self.at = stop
        made.sure = False  # never closed

    def escape(self, made: _Draft) -> None:
        """What follows a backslash in $'…'."""
        c = self.text[self.at : self.at + 1]
        longest = _HEXADECIMAL.get(c, 0)
        digits = _digits(self.text[self.at + 1 : self.at + 1 + longest], _HEX)
        octal = _digits(self.text[self.at : self.at + 3], "01234567")
        if digits or octal:
            self.at += len(octal) or 1 + len(digits)
            code = int(octal, 8) & 0xFF if octal else int(digits, 16)
            # A byte of a longer character, or the end of the text: nobody can say what the word becomes.
            if 0 < code < (0x110000 if c in "uU" else 0x80):
                made.quote(chr(code))
            else:
                made.sure = False
            return
        self.at = min(self.at + 1, self.end)
        if c == "c" or not c:
            made.sure = False
        else:
            made.quote(_ESCAPES.get(c, "\\" + c))


def _digits(text: str, allowed: str) -> str:
    return text[: len(text) - len(text.lstrip(allowed))]


_HEX = "0123456789abcdefABCDEF"
_HEXADECIMAL = {"x": 2, "u": 4, "U": 8}
_ESCAPES = {"a": "\a", "b": "\b", "e": "\033", "E": "\033", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPES |= {c: c for c in "\\'\"?"}
_BEFORE_A_COMMAND = ("if", "then", "else", "elif", "while", "until", "do", "!", "{", "time")
_WRITING = (">", ">>", ">|", "&>", "&>>", "<>")
_OPERATORS = ("&>>", "&>", "<<<", "<<-", "<<", "<&", "<>", "<(", "<", ">>", ">|", ">&", ">(", ">")
"""Longer ones first."""
