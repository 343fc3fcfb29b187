"""`dibs mcp` over stdio: one client, one worker, as long as this process.

Three threads besides those of the requests. The first speaks the protocol. The keeper renews what the worker holds and
looks whether the client's process is still there. The last one waits for the end (end of input, a signal, the client
gone), gives everything back and ends the process, even if another thread hangs. If this process is killed instead,
the board frees what it held: its pid, start time and boot are in every claim.

Who the worker is follows from `--as`, DIBS_AGENT or the client's name, so it is settled by the client's first message;
`clients.register` then tells the client's hooks and shells.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

from dibs import clients, limits
from dibs.board import TaskBoard
from dibs.errors import DibsError
from dibs.mcp.seat import Call, Gone, Seat
from dibs.model import Worker
from dibs.places import find_place, working_directory
from dibs.worker import boot, host, is_dead, of_process, process_start

LOOK = 1.0
"""Seconds between two looks at the client's process and at the board's head."""
KEEP = 15.0
"""Seconds between two looks at the leases, at most, when nothing happened on the board."""
PATIENCE = 3.0
"""Seconds for giving back what is held; then the process ends anyway, and the board sees that."""

OpenBoard = Callable[[str], TaskBoard]
"""Opens the board; given the worker's name, which a dialect's guard is taken under."""


def serve(open_board: OpenBoard, client: str | None = None, name: str | None = None) -> None:
    """Serve until the client ends. Does not return: the process ends here."""
    ends: SimpleQueue[int] = SimpleQueue()
    for number in ("SIGTERM", "SIGINT", "SIGHUP"):
        if hasattr(signal, number) and signal.getsignal(getattr(signal, number)) is not signal.SIG_IGN:
            signal.signal(getattr(signal, number), lambda *_: ends.put(0))
    life = Life(open_board, client, name, ends)
    threading.Thread(target=life.end, name="end", daemon=True).start()
    if client is not None or name is not None:
        life.sit_down(client or "agent")
    threading.Thread(target=life.keep, name="keeper", daemon=True).start()
    try:
        _speak(life)
        ends.put(0)
    except BaseException:
        import traceback

        traceback.print_exc()
        ends.put(1)
    time.sleep(PATIENCE * 3)  # the last thread ends the process
    os._exit(1)


def _speak(life: Life) -> None:
    from dibs.mcp.lines import Connection

    writing = threading.Lock()
    out = sys.stdout.fileno()

    def send(line: bytes) -> None:
        with writing:
            try:
                while line:
                    line = line[os.write(out, line) :]
            except OSError:
                life.ends.put(0)  # the client does not take answers any more

    connection = Connection(lambda client: life.sit_down(client or "agent"), send)
    for line in sys.stdin.buffer:
        connection.receive(line)


def _client() -> Worker | None:
    """The client's process, which may have started us through a shell or a runner that outlives it."""
    above = clients.client_process()
    return None if above is None else Worker("client", host=host(), pid=above[0], started=above[1], boot=boot())


class Life:
    """What the threads share: the seat, once it is known whose it is, and the end."""

    def __init__(self, open_board: OpenBoard, client: str | None, name: str | None, ends: SimpleQueue[int]) -> None:
        self.seat: Seat | None = None
        self.ends = ends
        self._open = open_board
        self._client = client
        self._name = name
        self._parent = os.getppid()
        self._client_process = _client()
        self._note: str | None = None
        self._turn = threading.Lock()

    def sit_down(self, client: str) -> Seat:
        """The worker's seat; made by the first who asks. `client` counts if `--client` was not given."""
        with self._turn:
            if self.seat is None:
                client = self._client or client
                pid = os.getpid()
                session = os.environ.get("DIBS_SESSION") or f"mcp-{pid}-{process_start(pid)}"
                limits.name(session, "session")
                worker = of_process(limits.name(self._name or clients.worker_name(client, session)), "agent", session)

                def opened() -> TaskBoard:
                    board = self._open(worker.name)
                    here = working_directory()
                    root = os.path.realpath(find_place(here).worktree or here)
                    self._note = clients.register(worker, client, board.url, root)
                    return board

                self.seat = Seat(opened, worker, kept=True)
            return self.seat

    # -- the keeper

    def keep(self) -> None:
        pause, due, mark = LOOK, 0.0, None
        while True:
            if os.getppid() != self._parent or (self._client_process and is_dead(self._client_process)):
                self.ends.put(0)
                return
            try:
                if self.seat is not None:
                    with Call(self.seat) as call:  # the end waits for calls, and so for a write of ours
                        head = call.board.store.mark_change()
                        if head != mark or time.monotonic() >= due:
                            lease = self.seat.keep()
                            pause = LOOK if lease is None else min(LOOK, lease / 6)
                            due = time.monotonic() + (KEEP if lease is None else min(KEEP, lease / 6))
                            mark = head
            except Gone:
                return
            except DibsError:
                pass  # no board yet, or busy: the next look may find it better
            except Exception:
                if os.environ.get("DIBS_DEBUG"):
                    import traceback

                    traceback.print_exc()
            time.sleep(pause)

    # -- the end

    def end(self) -> None:
        code = self.ends.get()
        giving = threading.Thread(target=self._give_back, name="giving back", daemon=True)
        giving.start()
        giving.join(PATIENCE)
        os._exit(code)  # without a flush of stderr: nobody may be reading there

    def _give_back(self) -> None:
        seat = self.seat
        if seat is None:
            return
        seat.close()
        try:
            if seat.has_board:
                seat.board.release_agent_tasks(seat.worker, note="its client has ended")
                seat.board.close()
        finally:
            clients.withdraw(self._note)
