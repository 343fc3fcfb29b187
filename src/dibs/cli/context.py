"""What every command is given besides its arguments: the board, the worker, and where output goes.

`board` and `worker` are made when first asked for. Commands name the worker in every verb (`worker=ctx.worker`): the
board itself is opened without one. Results go to stdout (`emit` under --json, `say` otherwise), everything else to
stderr (`note`).
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TextIO, TypeVar

    from dibs.board import TaskBoard
    from dibs.cli.args import Args
    from dibs.model import Worker
    from dibs.stores.base import Store

    T = TypeVar("T")


class Context:
    def __init__(self, args: Args) -> None:
        self.url = args.board
        self.as_name = args.as_
        self.human = args.human
        self.json = args.json or wants_json()
        self._color = None if not args.no_color else False
        self._board: TaskBoard | None = None
        self._worker: Worker | None = None

    # -- who and where

    @property
    def board(self) -> TaskBoard:
        if self._board is None:
            from dibs.address import open_store
            from dibs.board import TaskBoard
            from dibs.worker import stale_timeout

            store = self._open(open_store)
            if hasattr(store, "dialect"):
                from dibs.guards import release_on_signals

                release_on_signals()  # a lock file or folder outlives its maker, unlike a kernel's lock
            elif not self.url and not os.environ.get("DIBS_BOARD"):
                self._tell_of_other_board(store)
            self._board = TaskBoard(store=store, stale_timeout=stale_timeout())
        return self._board

    def _open(self, open_store: Callable[..., Store]) -> Store:
        """The board that was asked for or belongs here; below a coding client that works on another one, that."""
        from dibs.errors import NoBoard

        try:
            return open_store(self.url, agent=self.as_name)
        except NoBoard:
            if self.url or os.environ.get("DIBS_BOARD"):
                raise
            from dibs.clients import board_around

            other = board_around()
            if other is None:
                raise
            return open_store(other, agent=self.as_name)

    def _tell_of_other_board(self, taken: Store) -> None:
        """Whoever stands in a dialect's files, below the folder of the board that goes first, may mean those files."""
        from dibs.dialects.discover import discover
        from dibs.places import working_directory

        found = discover(working_directory())
        if found is not None and taken.place is not None and found != discover(taken.place):
            from dibs.cli.render import safe
            from dibs.errors import quoted

            other = quoted(f"{found[0]}:{found[1]}")
            self.note(f"dibs: this is {safe(taken.url)}; the {found[0]} files here are another board: --board {other}")

    @property
    def handed_on(self) -> str:
        """The board's address for a process that we start: one with a password as it was given, or it could not get in.
        It goes into its environment, never onto its command line, which everybody on the machine can read."""
        named = self.url or os.environ.get("DIBS_BOARD")
        url = self.board.url
        return named if named and url.startswith("postgresql:") else url

    @property
    def worker(self) -> Worker:
        if self._worker is None:
            from dibs.worker import from_environment

            url = None if self._board is None else self._board.url
            self._worker = from_environment(self.as_name, self.human, board=url)
        return self._worker

    def by_id(self, given: str, act: Callable[[str], T]) -> T:
        """`act` on the task with this id or, if there is none, on the one whose id begins so."""
        from dibs.errors import NotFound

        try:
            return act(given)
        except NotFound as error:
            if error.fields.get("task_id") != given:
                raise
            full = self.board.resolve(given)
            if full == given:
                raise
        return act(full)

    def explain(self, error: Exception) -> None:
        """Let the hint of an error name the board that was asked for."""
        from dibs.errors import NoBoard

        named = self.url or os.environ.get("DIBS_BOARD")
        if isinstance(error, NoBoard) and not named and (told := clients_board()):
            error.hint = f"{told}; or {error.hint}"
        if isinstance(error, NoBoard) and named and "url" not in error.fields:  # which a store has then named itself
            from dibs.address import masked
            from dibs.errors import quoted

            role = " --as planner-1" if named.startswith("workflow:") else ""
            error.hint = f"make one with: dibs --board {quoted(masked(named))}{role} init"

    def text(self, words: Sequence[str]) -> str:
        """Words given as a text; a single `-` reads it from stdin."""
        if list(words) != ["-"]:
            return " ".join(words)
        from dibs.errors import Invalid
        from dibs.limits import TEXT_BYTES

        if sys.stdin is None:
            raise Invalid("there is no stdin to read the text from")
        try:
            return sys.stdin.read(TEXT_BYTES + 1).removesuffix("\n")
        except UnicodeDecodeError:
            raise Invalid("the text on stdin is not valid UTF-8") from None

    def close(self) -> None:
        if self._board is not None:
            self._board.close()
            self._board = None

    # -- output

    @property
    def color(self) -> bool:
        if self._color is None:
            self._color = (
                not os.environ.get("NO_COLOR")
                and os.environ.get("TERM") != "dumb"
                and bool(sys.stdout)
                and sys.stdout.isatty()
            )
        return self._color

    @property
    def width(self) -> int:
        """Columns to fill: the terminal's (160 at most), 80 when stdout is not a terminal."""
        columns = os.environ.get("COLUMNS", "")
        if columns.isascii() and columns.isdigit() and columns != "0":
            wide = int(columns[:6])
        else:
            try:
                wide = os.get_terminal_size(1).columns or 80
            except OSError:
                wide = 80
        return max(40, min(wide, 160))

    @property
    def is_endless(self) -> bool:
        """Are lines read by a program, or kept in a file? Then none of them is cut."""
        return not os.environ.get("COLUMNS") and not (sys.stdout and sys.stdout.isatty())

    def emit(self, document: Any) -> None:
        """One JSON document, on a line of its own, to stdout."""
        from dibs.jsontext import dumps

        write(sys.stdout, dumps(document) + "\n")

    def say(self, text: str) -> None:
        """Text for people, already made safe by `render`, to stdout."""
        write(sys.stdout, text + "\n")

    def flush(self) -> None:
        """Show now what was said; for output that goes on."""
        if sys.stdout is not None:
            sys.stdout.flush()

    def note(self, text: str) -> None:
        """A remark, to stderr."""
        write(sys.stderr, text + "\n")


def clients_board(used: str | None = None) -> str | None:
    """What to say if the coding clients of this repository are told to use a board, and it is not the one `used`."""
    from dibs.address import masked
    from dibs.places import find_place, working_directory
    from dibs.proving.configured import read
    from dibs.setup.clients import CLIENTS

    here = working_directory()
    root = find_place(here).worktree or here
    for name in CLIENTS:
        board = read(name, root).board
        if board is not None and board != used:
            from dibs.errors import quoted

            return f"this repository's clients ({name}) use another: export DIBS_BOARD={quoted(masked(board))}"
    return None


class OutputLost(Exception):
    """What was to be printed could not be: a full disk behind stdout, for example."""


def write(stream: TextIO | None, text: str) -> None:
    if stream is None:  # started with the descriptor closed
        return
    try:
        try:
            stream.write(text)
        except UnicodeEncodeError:
            encoding = stream.encoding or "ascii"
            stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputLost(error.strerror or str(error)) from error


def wants_json() -> bool:
    return os.environ.get("DIBS_JSON", "").lower() not in ("", "0", "false", "no")
