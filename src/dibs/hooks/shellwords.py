"""A shell command line taken apart: simple commands with their words, redirections and here-documents, in order.

    for item in parse("cd src && sed -i s/a/b/ x.py > /dev/null"): ...

An item is a `Command`, or OPEN and CLOSE around what runs in a shell of its own (`( … )`, `$( … )`, backticks).
This knows just enough of POSIX sh and bash to find words and where they end; it expands nothing. A word with an
expansion in it is not `sure`. Keywords are words like any other. It reads any text to its end, never raises, and gives
up (returning what it has) on text nested deeper than `DEEPEST`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    Items = list["Command | str"]

OPEN, CLOSE = "(", ")"
DEEPEST = 40

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
    """A simple command: its words, the words that output is redirected to, and the here-documents it is fed."""

    __slots__ = ("documents", "outputs", "words")

    def __init__(self) -> None:
        self.words: list[Word] = []
        self.outputs: list[Word] = []
        self.documents: list[str] = []


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
        self.items: Items = []
        self.awaited: list[tuple[Command, str, bool]] = []

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
                self.at += 1
                command = self.finish(command)
                if c == "\n":
                    self.here_documents()
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

    def finish(self, command: Command) -> Command:
        if command.words or command.outputs or command.documents:
            self.items.append(command)
            return Command()
        return command

    def find(self, what: str) -> int:
        at = self.text.find(what, self.at)
        return self.end if at < 0 else at

    def nested(self) -> None:
        """The list after a `(`, as a shell of its own."""
        if self.depth >= DEEPEST:
            self.at = self.end
            return
        self.depth += 1
        self.items.append(OPEN)
        self.list()
        self.items.append(CLOSE)
        self.depth -= 1

    def parenthesis(self, command: Command, after: int) -> Command:
        start = self.at
        self.at += 1
        if all(word.bare in _BEFORE_A_COMMAND for word in command.words):
            if self.text.startswith("((", start):  # arithmetic: its > compares
                self.at = min(self.find("))") + 2, self.end)
                return command
            command.words.clear()
            self.nested()
            return command
        if self.text[self.at : self.at + 20].lstrip().startswith(")"):  # `name()`: the body follows as a list
            self.at = self.find(")") + 1
            return Command()
        if after == start:  # an array, or a pattern such as @(a|b)
            command.words[-1].sure = False
        self.balance("(", ")")
        return command

    def balance(self, opening: str, closing: str) -> None:
        """Past the bracket that closes the one just read; quotes hide brackets."""
        depth = 1
        while self.at < self.end and depth:
            c = self.text[self.at]
            self.at += 1
            if c == "\\":
                self.at += 1
            elif c == "'" and opening == "(":
                self.at = self.find("'") + 1
            elif c == '"':
                self.double(Word())
            elif c == opening:
                depth += 1
            elif c == closing:
                depth -= 1
        self.at = min(self.at, self.end)

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
            self.awaited.append((command, word.text, operator == "<<-"))
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
                if line == delimiter:
                    break
                lines.append(line)
            command.documents.append("\n".join(lines))
        self.awaited.clear()

    # -- words

    def next_word(self, command: Command) -> None:
        word = self.word()
        follows = self.text[self.at : self.at + 1]
        if follows and follows in "<>" and (word.bare.isdigit() or (word.bare[:1] + word.bare[-1:]) == "{}"):
            return  # the descriptor of a redirection
        if word.bare == "[[" and all(w.bare in _BEFORE_A_COMMAND for w in command.words):
            self.at = min(self.find("]]") + 2, self.end)  # its > compares
            return
        command.words.append(word)

    def word(self) -> Word:
        text = self.text
        made = Word()
        while self.at < self.end:
            c = text[self.at]
            if c in _ENDS:
                break
            if c not in _SPECIAL:
                stop = self.at + 1
                while stop < self.end and text[stop] not in _SPECIAL:
                    stop += 1
                made.text += text[self.at : stop]
                made.bare += text[self.at : stop]
                self.at = stop
                continue
            self.at += 1
            if c == "\\":
                if text[self.at : self.at + 1] != "\n":
                    _quote(made, text[self.at : self.at + 1])
                self.at = min(self.at + 1, self.end)
            elif c == "'":
                self.single(made)
            elif c == '"':
                self.double(made)
            elif c == "`":
                self.backticks(made)
            else:
                self.dollar(made)
        return made

    def single(self, made: Word) -> None:
        stop = self.find("'")
        made.sure = made.sure and stop < self.end
        _quote(made, self.text[self.at : stop])
        self.at = min(stop + 1, self.end)

    def double(self, made: Word) -> None:
        text = self.text
        while self.at < self.end:
            c = text[self.at]
            self.at += 1
            if c == '"':
                return
            if c == "\\":
                escaped = text[self.at : self.at + 1]
                if escaped != "\n":
                    _quote(made, escaped if escaped in ('"', "\\", "$", "`") else "\\" + escaped)
                self.at = min(self.at + 1, self.end)
            elif c == "`":
                self.backticks(made)
            elif c == "$":
                self.dollar(made, quoted=True)
            else:
                stop = self.at
                while stop < self.end and text[stop] not in '"\\$`':
                    stop += 1
                _quote(made, text[self.at - 1 : stop])
                self.at = stop
        made.sure = False  # never closed

    def backticks(self, made: Word) -> None:
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
        inner.nested()
        self.items += inner.items

    def dollar(self, made: Word, quoted: bool = False) -> None:
        c = self.text[self.at : self.at + 1]
        if c == "'" and not quoted:
            self.at += 1
            before = len(made.text)
            self.ansi(made)
            made.sure = made.sure and "\\" not in made.text[before:]
            return
        if c == '"' and not quoted:
            self.at += 1
            self.double(made)
            return
        if c == "(":
            made.sure = False
            self.at += 1
            if self.text.startswith("(", self.at):
                self.balance("(", ")")
            else:
                self.nested()
        elif c == "{":
            made.sure = False
            self.at += 1
            self.balance("{", "}")
        elif c and (c.isalnum() or c in "_@*#?$!-"):
            made.sure = False
            self.at += 1
            if c.isalpha() or c == "_":
                while self.at < self.end and (self.text[self.at].isalnum() or self.text[self.at] == "_"):
                    self.at += 1
        else:
            _quote(made, "$")

    def ansi(self, made: Word) -> None:
        """The inside of $'…', where a backslash can hide the quote."""
        start = self.at
        while self.at < self.end and self.text[self.at] != "'":
            self.at += 2 if self.text[self.at] == "\\" else 1
        _quote(made, self.text[start : self.at])
        made.sure = made.sure and self.at < self.end
        self.at = min(self.at + 1, self.end)


def _quote(made: Word, text: str) -> None:
    made.text += text
    made.bare += _QUOTED * len(text)


_BEFORE_A_COMMAND = ("if", "then", "else", "elif", "while", "until", "do", "!", "{", "time")
_WRITING = (">", ">>", ">|", "&>", "&>>")
_OPERATORS = ("&>>", "&>", "<<<", "<<-", "<<", "<&", "<>", "<(", "<", ">>", ">|", ">&", ">(", ">")
"""Longer ones first."""
