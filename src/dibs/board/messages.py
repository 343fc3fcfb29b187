"""Verbs for messages between workers."""

from __future__ import annotations

from itertools import accumulate

from dibs import limits
from dibs.board.core import retried
from dibs.board.leases import keep_alive
from dibs.jsontext import dumps, loads
from dibs.model import Message, Worker
from dibs.rules import tasks as rules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.board.core import Core
    from dibs.stores.base import Tx


FOR_NEWCOMERS = 100
"""How many old messages a worker that has never read its inbox is given."""


@retried
def tell(
    core: Core,
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
    who = core.identity.actor(worker)
    key = None if request_key is None else limits.request(f"tell by {who.name}", request_key)
    asked = 0 if key is None else limits.fingerprint([content, to])
    with core.store.write() as tx:
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
        keep_alive(core, tx, who)
    return message


@retried
def inbox(
    core: Core, worker: Worker | str, *, peek: bool = False, limit: int = FOR_NEWCOMERS, most_text: int | None = None
) -> list[Message]:
    """Messages that this worker has not been given yet, oldest first; they count as given unless `peek`. With
    `most_text`, no more of them than have so many characters together, but always one."""
    who = core.identity.required(worker, "an inbox belongs to a worker")
    limits.integer(limit, "limit", 1, 100_000)
    if most_text is not None:
        limits.integer(most_text, "most_text", 1, 2**31)
    reader = _reader(who)
    if peek:
        with core.store.read() as tx:
            return _within(_unread(tx, who.name, reader, limit), most_text)
    with core.store.write() as tx:
        found = _within(_unread(tx, who.name, reader, limit), most_text)
        if found:
            tx.set_mark(reader, found[-1].seq)
        keep_alive(core, tx, who)
    return found


@retried
def unread(core: Core, worker: Worker | str, messages: Sequence[Message]) -> None:
    """Let messages count as not given, because they did not arrive. Later ones may then be given twice."""
    who = core.identity.required(worker, "an inbox belongs to a worker")
    if messages:
        with core.store.write() as tx:
            reader = _reader(who)
            tx.set_mark(reader, min(tx.marks(reader).get(reader, 0), messages[0].seq - 1))


def messages(core: Core, limit: int = FOR_NEWCOMERS) -> list[Message]:
    """The newest messages, whoever they were for."""
    with core.store.read() as tx:
        return tx.messages(None, 0, limit, newest=True)


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
