"""A board in a PostgreSQL database, shared by workers on any number of machines.

Address: `postgresql://user@host:port/database?board=NAME`, with whatever else libpq understands behind the `?`. Without
a name the board is `main`. A password is better kept in `~/.pgpass` or PGPASSWORD; one in the address is used, and
shown nowhere.

Writing: transactions run side by side, and each locks the rows that it decides about (see `tx`). The common claim and
completion are single statements (`quick`). Time is the database's; the clocks of the machines play no part.

Losing the connection. Before the commit was sent, nothing has happened: the verb runs again (`store.Collision`), on a
new connection. While the commit was under way, the server is asked what became of the transaction, by its number; it
is then taken as done, or runs again, or, if the server cannot tell within a few seconds, `OutcomeUnknown` says so.

What a crash leaves: of a client, a transaction that the server rolls back (at once when it sees the connection end,
after 10 s when it hears nothing); of the server, what was committed, as durable as its `synchronous_commit` makes it.
"""

from __future__ import annotations

import time

import psycopg
from psycopg import errors as pg

from dibs.clock import Clock
from dibs.errors import BoardUnusable, Invalid, OutcomeUnknown
from dibs.model import COMPLETED, TaskStatus
from dibs.store import Collision
from dibs.stores.postgres import making
from dibs.stores.postgres import statements as q
from dibs.stores.postgres.addresses import parse
from dibs.stores.postgres.failures import is_lost, is_unprepared, translate
from dibs.stores.postgres.fronts import Fronts
from dibs.stores.postgres.links import Link, Links
from dibs.stores.postgres.quick import PostgresQuick
from dibs.stores.postgres.tx import PostgresTx, bound_of
from dibs.stores.postgres.waking import Waking

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import NoReturn

    from dibs.store import Quick
    from dibs.stores.postgres.links import Statement

LOOK_FOR = 5.0
"""Seconds for which a commit whose answer did not come is looked for."""


class PostgresStore:
    lease: float | None = None
    met_by: tuple[TaskStatus, ...] = (COMPLETED,)
    streams = True
    """Does `restore` go over its rows instead of keeping them?"""

    def __init__(self, url: str, *, create: bool = False, clock: Clock | None = None, place: str | None = None) -> None:
        address = parse(url)
        self.url = address.shown
        self.name = address.board
        self.place = place
        self.clock = clock
        self.links = Links(address.conninfo, address.shown)
        self._offset = 0.0
        self.board = self._open(create)
        self.events = f"dibs.event_{self.board}"
        self.tasks = f"dibs.task_{self.board}"
        self.numbers = (self.events, self.board << 40)
        """What `statements.drawn` wants: the sequence, and the gate by which readers are told."""
        self.bound: tuple[Statement, ...] = ((q.LAST_NUMBER, (self.events,)), (q.IN_FLIGHT, (self.board,)))
        self.fronts = Fronts(self)
        self.quick: Quick | None = PostgresQuick(self)
        self._waking = Waking(self)

    def _open(self, create: bool) -> int:
        link = self.links.take()
        try:
            if create:
                making.make(link, self.name, self.url)
            return making.find(link, self.name, self.url)
        except psycopg.Error as error:
            raise (making.refused(link, error, self.url) if create else translate(error, self.url)) from error
        finally:
            self.links.give(link)

    def close(self) -> None:
        self._waking.close()
        self.links.close()

    # -- time

    def saw_time(self, now: float) -> None:
        self._offset = now - time.monotonic()

    @property
    def about_now(self) -> float:
        """The board's time as far as it can be known without asking."""
        return self.clock.wall() if self.clock else time.monotonic() + self._offset

    # -- transactions

    def write(self) -> _Turn:
        return _Turn(self, writing=True)

    def read(self) -> _Turn:
        return _Turn(self, writing=False)

    def lost(self, link: Link, error: BaseException) -> Collision:
        """A connection that broke before anything was committed on it."""
        self.links.drop(link)
        if is_unprepared(error):
            self.links.prepares = False
        return Collision(
            f"the connection to {self.url} was lost ({str(error).strip().splitlines()[0][:200]}); nothing was changed",
            hint="repeat the command; if that happens every time, and a pooler stands between, see its log",
            url=self.url,
        )

    def fail(self, link: Link, error: BaseException) -> NoReturn:
        """Raise what an error of the driver means; the transaction, if there was one, is over."""
        if is_lost(error) or is_unprepared(error) or link.connection.closed:
            raise self.lost(link, error) from error
        self.abandon(link)
        raise translate(error, self.url) from error

    def abandon(self, link: Link) -> None:
        """Roll back and give the connection back."""
        try:
            if not link.is_idle and not link.connection.closed:
                link.roll_back()
        except psycopg.Error:
            pass
        self.links.give(link)

    def ask(self, *statements: Statement) -> list[list[tuple[object, ...]]]:
        """Statements outside any transaction, each by itself."""
        for last in (False, True):
            link = self.links.take()
            try:
                answers = link.trip(statements)
            except (KeyboardInterrupt, SystemExit, GeneratorExit):
                self.links.discard(link)
                raise
            except psycopg.Error as error:
                try:
                    self.fail(link, error)
                except Collision:
                    if last:
                        raise
                    continue
            self.links.give(link)
            return answers
        raise AssertionError

    def find_out(self, tx: PostgresTx, link: Link, error: BaseException) -> None:
        """The connection broke while a transaction was being committed: returns if it was, raises `Collision` if it was
        not, and `OutcomeUnknown` if there is no telling."""
        self.links.drop(link)
        end = time.monotonic() + LOOK_FOR
        while time.monotonic() < end:
            try:
                fate = self._fate(tx)
            except Collision:
                fate = None  # that connection broke as well
            except BoardUnusable:
                break
            if fate == "committed":
                return
            if fate == "aborted":
                raise self.lost(link, error) from error
            if fate == "another":
                break
            time.sleep(0.1)
        raise OutcomeUnknown(
            f"the connection to {self.url} was lost while a change was being saved, and the server does not tell "
            "whether it was",
            hint="see what is on the board: dibs log; a repeated call with the same request key or token does no harm",
            url=self.url,
        ) from error

    def _fate(self, tx: PostgresTx) -> str | None:
        """What became of a transaction. A server that has lost its newest past in a failover gives its number to
        another, or does not know it yet."""
        link = self.links.take()
        try:
            fate = link.trip([(q.FATE, (tx.xid,))])[0][0][0]
            if fate == "committed" and tx.last is not None:
                found = link.trip([(q.OWN_EVENTS, (self.board, tx.low, tx.xid))])[0]
                fate = "committed" if tx.knows(found) else "another"
        except pg.InvalidParameterValue:
            fate = "aborted"  # a number from the future
        except psycopg.Error as error:
            self.fail(link, error)
        self.links.give(link)
        return str(fate) if fate is not None else None

    # -- following and waiting

    def settled(self) -> int | None:
        return bound_of(self.ask(*self.bound))

    def mark_change(self) -> int:
        answers = self.ask(*self.bound, (q.NEWEST, (self.board,)))
        newest = int(str(answers[2][0][0]))
        # Grows with every commit that is seen, in whatever order; numbers that were drawn for nothing do not count.
        return newest + min(bound_of(answers[:2]), newest)

    def wait_change(self, mark: int, timeout: float) -> bool:
        return self._waking.wait(mark, timeout)

    def behind(self, far_front: tuple[str, int] | None) -> list[Statement]:
        """What to send behind a commit: that those who wait wake, and that a front follows which is far behind. Both
        are one transaction; if the gate of fronts cannot be had, whoever waits finds out by looking."""
        raising = self.fronts.behind(*far_front) if far_front is not None else []
        return [*raising[:1], *self._waking.call(), *raising[1:]]

    def tell(self, link: Link) -> None:
        """Wake those who wait. It is no part of what was committed, and may fail."""
        told = self._waking.call()
        if told:
            try:
                link.trip(told)
            except psycopg.Error:
                pass


class _Turn:
    """`with store.write() as tx` and `with store.read() as tx`."""

    __slots__ = ("_link", "_store", "_tx", "_writing")

    def __init__(self, store: PostgresStore, writing: bool) -> None:
        self._store = store
        self._writing = writing

    def __enter__(self) -> PostgresTx:
        self._link = self._store.links.take()
        self._tx = PostgresTx(self._store, self._link, self._writing)
        return self._tx

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        store, link, tx = self._store, self._link, self._tx
        if isinstance(error, UnicodeEncodeError):
            store.abandon(link)
            raise Invalid("that is not valid Unicode text") from error
        if isinstance(error, psycopg.Error):
            store.fail(link, error)
        if kind is not None or not tx.changed:
            store.abandon(link)
            return
        try:
            tx.commit()
        except psycopg.Error as problem:
            if not (is_lost(problem) or link.connection.closed):
                store.fail(link, problem)
            if tx.xid is None:
                raise store.lost(link, problem) from problem
            store.find_out(tx, link, problem)
            return
        except BaseException:
            store.links.drop(link)
            raise
        store.links.give(link)


def open_postgres(url: str, *, create: bool, clock: Clock | None) -> PostgresStore:
    """The store, with lock paths belonging to the repository that we stand in."""
    from dibs.places import find_place, working_directory

    place = find_place(working_directory())
    return PostgresStore(url, create=create, clock=clock, place=place.home if place.worktree is not None else None)
