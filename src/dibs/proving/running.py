"""Running a short command as a client runs its hooks: in a shell, an event on stdin, an answer on stdout, and a limit.

The command gets a process group of its own, and whatever is left of the group is killed when the answer is there, the
time is over, or we are interrupted. Output goes to files, so that nobody waits for a pipe that a grandchild keeps open.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from subprocess import Popen
    from typing import Any

LIMIT = 10.0
"""Seconds that a hook gets if its configuration gives it more, or nothing."""
SAFELY = {"PYTHONSAFEPATH": "1"}
"""A `python -m dibs` that stands in the repository must not run a package of that name there."""
_MOST = 1 << 16
_IDENTITY = (
    "DIBS_AGENT", "DIBS_SESSION", "DIBS_KIND", "DIBS_JSON", "CLAUDE_CODE_SESSION_ID", "CLAUDE_ENV_FILE",
    "CODEX_THREAD_ID", "GEMINI_SESSION_ID",
)  # fmt: skip


_REPOSITORY = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY",
)  # fmt: skip
"""What a git that runs us would tell us, and not what the worktree that we stand in would."""


def own_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _REPOSITORY}


def surroundings(folder: str) -> dict[str, str]:
    """The environment of a client that was started here: without what names a worker, and with a place of its own for
    the registry of clients, so that nobody takes our servers for those of a real one."""
    kept = {name: value for name, value in own_environment().items() if name not in _IDENTITY}
    temporary, runtime = os.path.join(folder, "tmp"), os.path.join(folder, "run")
    for path in (temporary, runtime):
        os.makedirs(path, 0o700, exist_ok=True)
    return {**kept, **SAFELY, "TMPDIR": temporary, "DIBS_RUNTIME_DIR": runtime}


class Outcome:
    """How a command ended; `code` is None if it did not within its time."""

    __slots__ = ("code", "err", "out", "seconds")

    def __init__(self, code: int | None, out: str, err: str, seconds: float) -> None:
        self.code = code
        self.out = out
        self.err = err
        self.seconds = seconds

    @property
    def answer(self) -> Any:
        """The JSON document on stdout; None if there is nothing. What is something else raises ValueError."""
        from dibs.jsontext import loads

        return loads(self.out) if self.out.strip() else None

    def last_words(self) -> str:
        return last_lines(self.err)


def last_lines(text: str) -> str:
    """The last lines of what a program said, for a sentence that ends with them."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"; it said: {' / '.join(lines[-3:])[-400:]}" if lines else ""


def shell(line: str) -> list[str]:
    return ["cmd", "/c", line] if os.name == "nt" else ["sh", "-c", line]


async def run(
    argv: Sequence[str], folder: str, cwd: str, env: Mapping[str, str], stdin: str = "", limit: float = LIMIT
) -> Outcome:
    """Run to its end or the limit; `folder` is for its output. What cannot be started raises OSError."""
    import subprocess
    import tempfile
    import time

    import anyio

    begun = time.monotonic()
    with tempfile.TemporaryFile(dir=folder) as out, tempfile.TemporaryFile(dir=folder) as err:
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=out, stderr=err, cwd=cwd, env=dict(env), start_new_session=True
        )
        try:
            assert process.stdin is not None
            try:
                process.stdin.write(stdin.encode())
                process.stdin.close()
            except OSError:
                pass  # it ended without reading; its answer tells why
            while process.poll() is None and time.monotonic() - begun < limit:
                await anyio.sleep(0.01)
            code = process.poll()
        finally:
            _end(process)
        out.seek(0)
        said = out.read(_MOST).decode("utf-8", "replace")
        err.seek(max(0, err.seek(0, os.SEEK_END) - _MOST))
        return Outcome(code, said, err.read(_MOST).decode("utf-8", "replace"), time.monotonic() - begun)


def _end(process: Popen[bytes]) -> None:
    import signal

    try:
        if os.name == "nt":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        pass
    process.wait()
