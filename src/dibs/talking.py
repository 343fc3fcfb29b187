"""Verbs for messages between workers, and for reading the changelog as it grows."""

from __future__ import annotations

from itertools import accumulate

from dibs import limits, rules
from dibs.core import retried
from dibs.errors import Invalid
from dibs.jsontext import dumps, loads
from dibs.leases import Leases
from dibs.model import Event, Message, Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dibs.store import Tx


FOR_NEWCOMERS = 100
"""How many old messages a worker that has never read its inbox is given."""


class Talking(Leases):
    @retried
    def tell(
        self,
        content: str,
        to: str | None = None,
        *,
        worker: Worker | str | None = None,
        request_key: str | None = None,
    ) -> Message:
        """Send a message to the workers of a name, or (None) to everybody else. The same request key again sends
        nothing more."""
        limits.text(content, "message")
        if to is not None:
            limits.name(to, "recipient")
        who = self._actor(worker)
        key = None if request_key is None else limits.request(f"tell by {who.name}", request_key)
        asked = 0 if key is None else limits.fingerprint([content, to])
        with self._store.write() as tx:
            message = Message(who.name, content, to)
            if key is not None and (answer := tx.requests(key)):
                before, message.time, message.seq = loads(answer[key][0])
                if before != asked:
                    raise limits.key_was_used()
                return message
            event = rules.event("sent_message", who, None, content, to=to)
            tx.draw(1)
            tx.append([event])
            message.seq, message.time = event.seq, event.time
            tx.post(message)
            if key is not None:
                tx.remember(key, dumps([asked, message.time, message.seq]))
            self._keep_alive(tx, who)
        return message

    @retried
    def inbox(
        self, worker: Worker | str, *, peek: bool = False, limit: int = FOR_NEWCOMERS, most_text: int | None = None
    ) -> list[Message]:
        """Messages that this worker has not been given yet, oldest first; they count as given unless `peek`. With
        `most_text`, no more of them than have so many characters together, but always one."""
        who = self._who(worker)
        if who is None:
            raise Invalid("an inbox belongs to a worker")
        limits.integer(limit, "limit", 1, 100_000)
        if most_text is not None:
            limits.integer(most_text, "most_text", 1, 2**31)
        reader = _reader(who)
        if peek:
            with self._store.read() as tx:
                return _within(_unread(tx, who.name, reader, limit), most_text)
        with self._store.write() as tx:
            found = _within(_unread(tx, who.name, reader, limit), most_text)
            if found:
                tx.set_mark(reader, found[-1].seq)
            self._keep_alive(tx, who)
        return found

    @retried
    def unread(self, worker: Worker | str, messages: Sequence[Message]) -> None:
        """Let messages count as not given, because they did not arrive. Later ones may then be given twice."""
        who = self._who(worker)
        if who is None:
            raise Invalid("an inbox belongs to a worker")
        if messages:
            with self._store.write() as tx:
                reader = _reader(who)
                tx.set_mark(reader, min(tx.marks(reader).get(reader, 0), messages[0].seq - 1))

    def messages(self, limit: int = FOR_NEWCOMERS) -> list[Message]:
        """The newest messages, whoever they were for."""
        with self._store.read() as tx:
            return tx.messages(None, 0, limit, newest=True)

    def recent(self, limit: int = 50, task_id: str | None = None) -> list[Event]:
        """The last events, of the board or of one task, oldest first."""
        with self._store.read() as tx:
            if task_id is not None:
                return tx.events(0, 2**31, task_id)[-limit:]
            return tx.events(0, limit, newest=True)

    def changelog(
        self, after: int = 0, *, task_id: str | None = None, follow: bool = False, timeout: float | None = None
    ) -> Iterator[Event]:
        """The events after a number, in order, none missed and none twice; `follow` goes on as they happen (until
        `timeout`)."""
        import time

        end = None if timeout is None else time.monotonic() + timeout
        while True:
            mark = self._store.mark_change()
            while True:
                bound = self._store.stable_seq()
                with self._store.read() as tx:
                    batch = tx.events(after, 500, task_id)
                if bound is not None:
                    batch = [event for event in batch if event.seq <= bound]
                yield from batch
                if not batch:
                    break
                after = batch[-1].seq
            if not follow:
                return
            left = 3600.0 if end is None else end - time.monotonic()
            if left <= 0:
                return
            self._store.wait_change(mark, left)


def _reader(who: Worker) -> str:
    return who.name if who.session is None else f"{who.name}\n{who.session}"


def _unread(tx: Tx, name: str, reader: str, limit: int) -> list[Message]:
    """What comes next for a reader; a newcomer begins with the newest, everybody else goes on where it stopped."""
    mark = tx.marks(reader).get(reader, 0)
    return tx.messages(name, mark, limit, newest=mark == 0)


def _within(messages: list[Message], most_text: int | None) -> list[Message]:
    if most_text is None:
        return messages
    sizes = accumulate(len(message.content) for message in messages)
    return messages[: max(1, sum(size <= most_text for size in sizes))]
