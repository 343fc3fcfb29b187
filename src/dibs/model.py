"""The nouns: BoardTask, TaskStatus, Step, Blocker, Worker, Lock, Event, Message. No I/O, no rules.

They are plain classes with `__slots__` rather than dataclasses and enums because `dataclasses` alone costs more
to import than a bare interpreter costs to start; `BoardTask` still answers to `dataclasses.asdict`,
`fields` and `replace`, as document 004 promises, through a descriptor that imports `dataclasses` when asked.
"""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Any, Protocol, Self

    class Claims(Protocol):
        """The board that a claim was made through."""

        def _is_ours(self, task: BoardTask) -> bool: ...
        def finish_claim(self, task: BoardTask, result: str | None, *, claim_next: bool) -> BoardTask | None: ...
        def fail(self, task_id: str, error: str, /, *, token: int | None) -> BoardTask: ...
        def release(self, task_id: str, /, *, token: int | None, note: str | None) -> BoardTask: ...
        def renew(self, task_id: str, /, *, token: int | None, lease: float | None) -> BoardTask: ...


class _StatusMeta(type):
    _members: dict[str, TaskStatus]

    def __call__(cls, value: str) -> Any:
        try:
            return cls._members[value]
        except (KeyError, TypeError):
            raise ValueError(f"{value!r} is not a valid TaskStatus") from None

    def __iter__(cls) -> Iterator[TaskStatus]:
        return iter(cls._members.values())

    def __len__(cls) -> int:
        return len(cls._members)

    def __getitem__(cls, name: str) -> TaskStatus:
        return cls._members[name.lower()]


class TaskStatus(str, metaclass=_StatusMeta):
    """A task's status: a string, and a closed set of singletons, used as an enum is used."""

    PENDING: TaskStatus
    IN_PROGRESS: TaskStatus
    REVIEW: TaskStatus
    COMPLETED: TaskStatus
    FAILED: TaskStatus
    CANCELLED: TaskStatus

    __slots__ = ()

    @property
    def value(self) -> str:
        return str.__str__(self)

    @property
    def name(self) -> str:
        return self.upper()

    def __repr__(self) -> str:
        return f"TaskStatus.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return TaskStatus, (str(self),)

    def __copy__(self) -> TaskStatus:
        return self

    def __deepcopy__(self, memo: object) -> TaskStatus:
        return self


TaskStatus._members = {}
for _name in ("pending", "in_progress", "review", "completed", "failed", "cancelled"):
    _member = str.__new__(TaskStatus, _name)
    TaskStatus._members[_name] = _member
    setattr(TaskStatus, _name.upper(), _member)

PENDING = TaskStatus.PENDING
IN_PROGRESS = TaskStatus.IN_PROGRESS
REVIEW = TaskStatus.REVIEW
COMPLETED = TaskStatus.COMPLETED
FAILED = TaskStatus.FAILED
CANCELLED = TaskStatus.CANCELLED

OPEN = (IN_PROGRESS, REVIEW, PENDING)
CLOSED = (COMPLETED, FAILED, CANCELLED)

KINDS = ("agent", "human", "system")
RESERVED = ("any", "agent", "human")


class Record:
    """Equality, repr and dict form for classes whose `__slots__` are their fields."""

    __slots__: tuple[str, ...] = ()

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__ if name[0] != "_")
        return f"{type(self).__name__}({shown})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, n) == getattr(other, n) for n in self.__slots__ if n[0] != "_")

    __hash__ = None  # type: ignore[assignment]

    def as_dict(self) -> dict[str, Any]:
        """The fields that are set, in order."""
        return {n: v for n in self.__slots__ if n[0] != "_" and (v := getattr(self, n)) is not None}


class Worker(Record):
    """Who acts. Two workers are the same if their names are, unless both sessions are known and differ.

    `host`, `pid`, `started` and `boot` are set only when the worker lives exactly as long as a process:
    they are what makes its death provable.
    """

    __slots__ = ("name", "kind", "role", "session", "host", "pid", "started", "boot", "_text", "_checked")

    def __init__(
        self,
        name: str,
        kind: str = "agent",
        role: str | None = None,
        session: str | None = None,
        host: str | None = None,
        pid: int | None = None,
        started: str | None = None,
        boot: str | None = None,
    ) -> None:
        self.name = name
        self.kind = kind
        self.role = role
        self.session = session
        self.host = host
        self.pid = pid
        self.started = started
        self.boot = boot
        self._text: str | None = None
        self._checked = False
        """Has `limits.worker` accepted it, now or when it was first written?"""

    def is_same(self, other: Worker) -> bool:
        return self.name == other.name and (
            self.session is None or other.session is None or self.session == other.session
        )

    @property
    def text(self) -> str:
        """The JSON form, kept because a busy worker is written thousands of times."""
        if self._text is None:
            from dibs.jsontext import dumps

            self._text = dumps(self.as_dict())
        return self._text

    @classmethod
    def from_text(cls, text: str) -> Worker:
        from dibs.jsontext import loads

        worker = cls(**loads(text))
        worker._text = text
        worker._checked = True
        return worker

    def __str__(self) -> str:
        return self.name


class Step(Record):
    """One of a task's ordered steps."""

    __slots__ = ("id", "title", "status", "notes", "started_at", "expires_at", "completed_by", "completed_at")

    def __init__(
        self,
        id: str,
        title: str,
        status: str = "pending",
        notes: str | None = None,
        started_at: float | None = None,
        expires_at: float | None = None,
        completed_by: str | None = None,
        completed_at: float | None = None,
    ) -> None:
        self.id = id
        self.title = title
        self.status = status
        self.notes = notes
        self.started_at = started_at
        self.expires_at = expires_at
        self.completed_by = completed_by
        self.completed_at = completed_at


class Blocker(Record):
    """A reason, raised by somebody, for which a task cannot be claimed until it is resolved."""

    __slots__ = ("id", "reason", "raised_by", "raised_at", "resolution", "resolved_by", "resolved_at")

    def __init__(
        self,
        id: str,
        reason: str,
        raised_by: str | None = None,
        raised_at: float | None = None,
        resolution: str | None = None,
        resolved_by: str | None = None,
        resolved_at: float | None = None,
    ) -> None:
        self.id = id
        self.reason = reason
        self.raised_by = raised_by
        self.raised_at = raised_at
        self.resolution = resolution
        self.resolved_by = resolved_by
        self.resolved_at = resolved_at

    @property
    def is_open(self) -> bool:
        return self.resolved_at is None


class _DataclassFields:
    """Makes a hand-written class answer to `dataclasses.fields`, without importing `dataclasses` before it is asked."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.fields: dict[str, Any] | None = None

    def __get__(self, instance: object, owner: type) -> dict[str, Any]:
        if self.fields is None:
            import dataclasses

            made = dataclasses.make_dataclass("_", [(name, object, None) for name in self.names])
            self.fields = {f.name: f for f in dataclasses.fields(made)}
        return self.fields


class BoardTask:
    """A unit of work. The first ten fields, their order and their defaults are document 004's.

    A task that `claim` returned also acts: `complete`, `fail`, `release`, `renew`, and as a context manager
    it is released if the block raises.
    """

    __slots__ = (
        "_board",
        "assigned_to",
        "attempts",
        "blockers",
        "claimed_at",
        "completed_at",
        "created_at",
        "created_by",
        "depends_on",
        "description",
        "holder",
        "id",
        "labels",
        "lease",
        "lease_expires_at",
        "max_attempts",
        "parent",
        "paths",
        "priority",
        "reserved",
        "result",
        "review",
        "seq",
        "status",
        "steps",
        "token",
        "unmet",
    )

    __dataclass_fields__ = _DataclassFields(
        "id", "description", "status", "assigned_to", "depends_on", "result", "priority",
        "created_at", "claimed_at", "completed_at",
    )  # fmt: skip

    def __init__(
        self,
        id: str,
        description: str,
        status: TaskStatus = PENDING,
        assigned_to: str | None = None,
        depends_on: list[str] | None = None,
        result: str | None = None,
        priority: int = 0,
        created_at: float | None = None,
        claimed_at: float | None = None,
        completed_at: float | None = None,
        *,
        token: int | None = None,
        lease: float | None = None,
        lease_expires_at: float | None = None,
        holder: Worker | None = None,
        paths: list[str] | None = None,
        labels: list[str] | None = None,
        steps: list[Step] | None = None,
        blockers: list[Blocker] | None = None,
        parent: str | None = None,
        reserved: str = "any",
        review: bool = False,
        attempts: int = 0,
        max_attempts: int | None = None,
        created_by: str | None = None,
        unmet: int = 0,
        seq: int = 0,
    ) -> None:
        self.id = id
        self.description = description
        self.status = status
        self.assigned_to = assigned_to
        self.depends_on = [] if depends_on is None else depends_on
        self.result = result
        self.priority = priority
        self.created_at = time.time() if created_at is None else created_at
        self.claimed_at = claimed_at
        self.completed_at = completed_at
        self.token = token
        self.lease = lease
        self.lease_expires_at = lease_expires_at
        self.holder = holder
        self.paths = [] if paths is None else paths
        self.labels = [] if labels is None else labels
        self.steps = [] if steps is None else steps
        self.blockers = [] if blockers is None else blockers
        self.parent = parent
        self.reserved = reserved
        self.review = review
        self.attempts = attempts
        self.max_attempts = max_attempts
        self.created_by = created_by
        self.unmet = unmet
        self.seq = seq
        self._board: Claims | None = None

    def __repr__(self) -> str:
        who = f", assigned_to={self.assigned_to!r}" if self.assigned_to else ""
        return f"BoardTask(id={self.id!r}, description={self.description[:60]!r}, status={self.status!r}{who})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BoardTask):
            return NotImplemented
        return all(getattr(self, n) == getattr(other, n) for n in self.__slots__ if n != "_board")

    __hash__ = None  # type: ignore[assignment]

    def as_dict(self) -> dict[str, Any]:
        """Document 004's ten keys, in its order; times in seconds since the epoch."""
        return {
            "id": self.id,
            "description": self.description,
            "status": str(self.status),
            "assigned_to": self.assigned_to,
            "depends_on": list(self.depends_on),
            "result": self.result,
            "priority": self.priority,
            "created_at": self.created_at,
            "claimed_at": self.claimed_at,
            "completed_at": self.completed_at,
        }

    def __getstate__(self) -> dict[str, Any]:
        """A copy, here or in another process, is no longer a claim that can act: it has no board."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "_board"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._board = None
        for name, value in state.items():
            setattr(self, name, value)

    @property
    def open_blockers(self) -> list[Blocker]:
        return [b for b in self.blockers if b.is_open]

    @property
    def is_ready(self) -> bool:
        """Pending and not waiting for a dependency or a blocker. Held paths are not looked at here."""
        return self.status is PENDING and self.unmet == 0 and not (self.blockers and self.open_blockers)

    def complete(self, result: str | None = None, *, claim_next: bool = False) -> BoardTask | None:
        """Complete this claim. With `claim_next`, claim the next available task in the same transaction and return
        it; None if there is none, or others are at all that is left."""
        return self._claimed().finish_claim(self, result, claim_next=claim_next)

    def fail(self, error: str) -> None:
        self._adopt(self._claimed().fail(self.id, error, token=self.token))

    def release(self, note: str | None = None) -> None:
        self._adopt(self._claimed().release(self.id, token=self.token, note=note))

    def renew(self, lease: float | None = None) -> None:
        self._adopt(self._claimed().renew(self.id, token=self.token, lease=lease))

    def __enter__(self) -> Self:
        self._claimed()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or self.status is not IN_PROGRESS:
            return
        if not self._claimed()._is_ours(self):
            return  # a forked child leaves the block; the claim is its parent's
        from dibs.errors import DibsError

        try:
            self.release(note=f"released after {kind.__name__}")
        except DibsError:
            pass  # the lease was lost meanwhile: nothing of ours to release, and the caller's error matters more

    def _claimed(self) -> Claims:
        if self._board is None:
            from dibs.errors import WrongStatus

            raise WrongStatus(
                f"task {self.id} was not claimed through this object",
                hint="claim it first: task = board.claim(worker, task_id)",
                task_id=self.id,
            )
        return self._board

    def _adopt(self, other: BoardTask) -> None:
        for name in self.__slots__:
            if name != "_board":
                setattr(self, name, getattr(other, name))


class Lock(Record):
    """A hold on a path pattern. `task_id` is set when it was taken together with a task."""

    __slots__ = (
        "pattern",
        "holder",
        "token",
        "acquired_at",
        "expires_at",
        "lease",
        "shared",
        "task_id",
        "worktree",
    )

    def __init__(
        self,
        pattern: str,
        holder: Worker,
        token: int,
        acquired_at: float,
        expires_at: float,
        lease: float,
        shared: bool = False,
        task_id: str | None = None,
        worktree: str | None = None,
    ) -> None:
        self.pattern = pattern
        self.holder = holder
        self.token = token
        self.acquired_at = acquired_at
        self.expires_at = expires_at
        self.lease = lease
        self.shared = shared
        self.task_id = task_id
        self.worktree = worktree


class Event(Record):
    """One line of the changelog. `details` is for people; `data` is what replaying needs."""

    __slots__ = ("action", "worker", "worker_type", "time", "task_id", "step_id", "details", "data", "seq")

    def __init__(
        self,
        action: str,
        worker: str,
        worker_type: str,
        time: float = 0.0,
        task_id: str | None = None,
        step_id: str | None = None,
        details: str | None = None,
        data: dict[str, Any] | None = None,
        seq: int = 0,
    ) -> None:
        self.action = action
        self.worker = worker
        self.worker_type = worker_type
        self.time = time
        self.task_id = task_id
        self.step_id = step_id
        self.details = details
        self.data = data
        self.seq = seq


class Message(Record):
    """A message from one worker to another (`to`), or to everybody (`to` is None)."""

    __slots__ = ("sender", "content", "to", "time", "seq")

    def __init__(self, sender: str, content: str, to: str | None = None, time: float = 0.0, seq: int = 0) -> None:
        self.sender = sender
        self.content = content
        self.to = to
        self.time = time
        self.seq = seq
