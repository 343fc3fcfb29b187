"""Who holds a guard, and is that process alive? Answers `dead` only on proof.

A pid alone proves death when no process has that number (`kill -0` says "no such process"). A number that is in use
again proves nothing, unless the holder also left a record of itself: pid, start time, boot and pid namespace, host.
A record from another host or another container says that our `kill -0` would ask the wrong kernel: unknown.
"""

from __future__ import annotations

import os

from dibs import worker
from dibs.jsontext import dumps, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ALIVE, DEAD, UNKNOWN = "alive", "dead", "unknown"
LONGEST_NAME = 60
"""Characters of a holder's name that a sentence has: it may be a whole command line."""


class Holder:
    """`since` and `age` are None where the holder left no readable time; `why` is a sentence about `state`."""

    __slots__ = ("name", "pid", "since", "age", "state", "why")

    def __init__(
        self,
        name: str | None = None,
        pid: int | None = None,
        since: float | None = None,
        age: float | None = None,
        state: str = UNKNOWN,
        why: str = "",
    ) -> None:
        self.name = name
        self.pid = pid
        self.since = since
        self.age = age
        self.state = state
        self.why = why

    @property
    def agent(self) -> str | None:
        return self.name

    def told(self) -> str:
        """Who has it and how they are, for somebody whom they keep waiting."""
        name = self.name or ""
        name = name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
        if self.pid is not None:
            name = f"process {self.pid}" + (f" ({name})" if name else "")
        name = name or "somebody"
        if self.state == ALIVE and self.pid is not None:
            return f"{name} has it, and is running"
        return f"{name} {'left' if self.state == DEAD else 'has'} it; {self.why}"

    def as_dict(self) -> dict[str, object]:
        return {key: getattr(self, key) for key in self.__slots__}

    def __repr__(self) -> str:
        return "Holder(" + ", ".join(f"{key}={value!r}" for key, value in self.as_dict().items()) + ")"


_here = (0, "", "")


def _where() -> tuple[str, str]:
    """(boot and pid namespace, host) of this process; asked for once, and again by a forked child."""
    global _here
    if _here[0] != os.getpid():
        _here = (os.getpid(), worker.boot(), worker.host())
    return _here[1:]


def own_record(nonce: str) -> str:
    """This process on one line: what lets others prove its death later, although its pid is in use again."""
    pid = os.getpid()
    boot, host = _where()
    return dumps({"pid": pid, "started": worker.process_start(pid), "boot": boot, "host": host, "nonce": nonce})


def read_record(text: str) -> dict[str, Any] | None:
    """A record as `own_record` wrote it, or None for whatever else this is."""
    if not text.startswith("{"):
        return None
    try:
        found = loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("pid"), int):
        return None
    if not all(isinstance(found.get(key), str) for key in ("boot", "host")):
        return None
    return found if found.get("started") is None or isinstance(found["started"], str) else None


def read_pid(text: str) -> int | None:
    """A pid as `echo $$` writes it; None for anything else, which then names no process that could be proved dead."""
    plain = text.strip()
    return int(plain) if plain.isascii() and plain.isdigit() and 0 < len(plain) < 11 and plain[0] != "0" else None


def look_at(pid: int | None, record: dict[str, Any] | None) -> tuple[str, str]:
    """(`alive`, `dead` or `unknown`; why) of the process that wrote this pid, and perhaps this record."""
    if pid is None:
        return UNKNOWN, "it names no process"
    if os.name == "nt":
        return UNKNOWN, "processes cannot be asked for here"
    same_boot = False
    if record is not None:
        if record["pid"] != pid:
            return UNKNOWN, "its pid and its record name two processes"
        here, host = _where()
        if record["host"] != host:
            return UNKNOWN, f"it was made on host {record['host'][:80]!r}"
        same_boot = record["boot"] == here
        if not same_boot and record["boot"].split(" ")[0] == here.split(" ")[0]:
            return UNKNOWN, "it was made in another container"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return DEAD, f"no process has the pid {pid}"
    except OverflowError:
        return UNKNOWN, "its pid is no pid"
    except OSError:
        pass  # it is there, and somebody else's
    if record is not None and same_boot and record["started"] is not None:
        started = worker.process_start(pid)
        if started is not None and started != record["started"]:
            return DEAD, f"the pid {pid} belongs to a later process by now"
    return ALIVE, f"process {pid} is running"
