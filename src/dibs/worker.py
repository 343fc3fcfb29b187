"""Who am I, and is that process alive?

A worker's name comes from `--as` or `DIBS_AGENT`, else from the MCP server of the coding client that we run in
(`clients`), else it is the login name, as a human. Its session tells two workers of one name apart: `DIBS_SESSION`,
else that of the client's MCP server, else what the coding client sets for its shells (Claude Code
`CLAUDE_CODE_SESSION_ID` since 2.1.132, Codex `CODEX_THREAD_ID`, Gemini CLI `GEMINI_SESSION_ID`), else the terminal's
session, else none, and then the name alone is the worker.

A process is known by pid, start time, and boot (with the pid namespace, so that two containers' pid 7 are two).
`is_dead` answers True only on proof; another host, another boot or an unreadable record is not proof.
"""

from __future__ import annotations

import errno
import os

from dibs import limits
from dibs.clock import boot_id
from dibs.errors import Invalid
from dibs.model import Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SESSION_VARIABLES = ("DIBS_SESSION", "CLAUDE_CODE_SESSION_ID", "CODEX_THREAD_ID", "GEMINI_SESSION_ID")

PROCESS = "DIBS_PROCESS"
"""Set by a team for its agents: host, boot, pid and start of the agent's process."""

_ROLES = ("planner", "worker", "integrator", "lead")


def from_environment(
    name: str | None = None,
    human: bool = False,
    environ: Mapping[str, str] | None = None,
    board: str | None = None,
) -> Worker:
    """The worker that a command acts for, on a board if that is known already."""
    env = os.environ if environ is None else environ
    given = env.get("DIBS_AGENT") if name is None else name
    if given is not None and not given.strip():
        # An unset variable in a script must not turn an agent into the human who is logged in.
        raise Invalid(
            "the worker's name is empty",
            hint="give one with --as NAME or DIBS_AGENT=NAME; to act as yourself, leave both out (unset DIBS_AGENT)",
        )
    if environ is None and not human and not env.get("DIBS_SESSION") and env.get("DIBS_KIND") != "human":
        from dibs.clients import around

        served = around(board)
        if served is not None and given in (None, served.name):
            return served
    kind = "human" if human else env.get("DIBS_KIND") or ("agent" if given else "human")
    made = Worker(
        limits.name(given or _plain(login_name(env))), limits.kind(kind), role=role_of(given), session=session(env)
    )
    if made.session is not None:
        limits.name(made.session, "session")
    if env.get(PROCESS) and made.session == env.get("DIBS_SESSION"):
        _live_as_long_as(made, env[PROCESS])
    return made


def _live_as_long_as(worker: Worker, process: str) -> None:
    """A team's agent lives as long as the process that the team started, and its commands act for it. Written down by
    who started it: in a sandbox the same process has another number."""
    where, _, rest = process.partition("\t")
    when, _, rest = rest.partition("\t")
    pid, _, started = rest.partition("\t")
    if pid.isascii() and pid.isdigit() and 0 < int(pid[:10]) < 2**31 and where and when and started:
        worker.host, worker.pid, worker.started, worker.boot = where, int(pid[:10]), started, when


def role_of(name: str | None) -> str | None:
    """`planner-1`, `lead`: the role is the name's first word where that is one of the roles."""
    first = (name or "").split("-", 1)[0]
    return first if first in _ROLES else None


def stale_timeout() -> float | None:
    """How long claims last unless they say otherwise; a team tells its agents' servers and commands so."""
    given = os.environ.get("DIBS_STALE_TIMEOUT")
    if not given:
        return None
    try:
        return limits.seconds(float(given), "DIBS_STALE_TIMEOUT")
    except ValueError:
        raise Invalid(f"DIBS_STALE_TIMEOUT must be a number of seconds, not {given!r:.40}") from None


def login_name(env: Mapping[str, str]) -> str:
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        if env.get(variable):
            return env[variable]
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        return f"user-{os.getuid()}" if hasattr(os, "getuid") else "user"


def _plain(login: str) -> str:
    r"""A login name as a worker may have it: `DOMAIN\\ann` is `DOMAIN-ann`."""
    name = "".join(c if limits.is_plain_name(f"_{c}") else "-" for c in login)
    return name if limits.is_plain_name(name) else f"_{name}"


def session(env: Mapping[str, str]) -> str | None:
    for variable in SESSION_VARIABLES:
        if env.get(variable):
            return env[variable]
    return terminal_session()


def terminal_session() -> str | None:
    """The session of the controlling terminal, named so that a later one with the same number differs; None without a
    terminal."""
    try:
        fields = _stat_fields("self")
        if fields is None:
            os.close(os.open("/dev/tty", os.O_RDWR | getattr(os, "O_NOCTTY", 0)))
            return f"terminal-{os.getsid(0)}"
        if fields[4] == "0":
            return None
        leader = _stat_fields(fields[3])
        return f"terminal-{fields[3]}-{leader[19] if leader else ''}"
    except (OSError, AttributeError, IndexError):
        return None


def of_process(name: str, kind: str = "agent", session: str | None = None) -> Worker:
    """A worker that lives as long as this process: when the process dies, what it held is given back at once."""
    pid = os.getpid()
    started = process_start(pid)
    own = session or next((os.environ[v] for v in SESSION_VARIABLES if os.environ.get(v)), None)
    return Worker(name, kind, role_of(name), own or f"process-{pid}-{started}", host(), pid, started, boot())


def host() -> str:
    return os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "localhost")


def boot() -> str:
    try:
        return f"{boot_id()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return boot_id()


def process_start(pid: int) -> str | None:
    """When a process started, in whatever unit the platform keeps; None if that cannot be read."""
    fields = _stat_fields(str(pid))
    if fields is not None:
        return fields[19]
    if os.path.isdir("/proc/self"):
        return None
    try:
        import psutil  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        return None
    try:
        return f"{psutil.Process(pid).create_time():.2f}"
    except psutil.Error:
        return None


def is_dead(worker: Worker, here: str | None = None) -> bool:
    """Is this worker's process provably gone? `here` is `boot()`, for callers that ask often."""
    return _runs(worker, here) is False


def is_alive(worker: Worker) -> bool:
    """Is this worker's process provably there?"""
    return _runs(worker, None) is True


def _runs(worker: Worker, here: str | None) -> bool | None:
    """Whether the process is there, or None where nothing can be proved."""
    if worker.pid is None or worker.started is None or not worker.boot:
        return None
    if worker.boot != (here or boot()) or worker.host != host():
        return None
    try:
        os.kill(worker.pid, 0)
    except OSError as error:
        if error.errno == errno.ESRCH:
            return False
    fields = _stat_fields(str(worker.pid))
    if fields is not None and fields[0] in "ZX":
        return False
    started = fields[19] if fields is not None else process_start(worker.pid)
    return None if started is None else started == worker.started


def _stat_fields(pid: str) -> list[str] | None:
    """The fields of /proc/PID/stat from the third on (state, ppid, pgrp, session, tty, …), if they can be read."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            line = file.read()
    except OSError:
        return None
    # The second field is the command in parentheses and may itself contain blanks and parentheses.
    return line[line.rindex(b")") + 2 :].decode("ascii", "replace").split()
