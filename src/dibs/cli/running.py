"""`dibs run`: claim a task, run a command for it, keep the lease while it lives, end the claim by its exit code.

The worker is this very process, in a session of its own: two runs never share a claim, even under one name and from
one terminal. If it dies without a word (SIGKILL) the next claimant gets the task at once. The command finds the task
and the worker in its environment, so `dibs done` or `dibs step` inside it act as the same worker, and a claim that the
command has ended itself is left as it is.

A thread renews the lease every third of it, and looks every other second whether the task is still ours; when it is
not (somebody cancelled it, or we were suspended past the lease), the command is stopped, because somebody else may be
working on the same thing. A board that was restored from a backup may have given the same token to another: so the
claim is known by its worker, too.

A board that is away when the command has ended (a database server that is restarted) is tried for a while (`LINGER`).
If it stays away, the error says how the command ended and which command saves that afterwards; the claim stays.
"""

from __future__ import annotations

import os
import signal
import threading
import time

from dibs.cli.args import UsageError
from dibs.cli.child import GRACE, Child, Signals
from dibs.cli.render import cut, one_line, safe
from dibs.errors import (
    BoardUnusable,
    Busy,
    DibsError,
    Invalid,
    LeaseLost,
    NotClaimable,
    NotFound,
    NotHolder,
    OutcomeUnknown,
    WrongStatus,
    quoted,
)
from dibs.jsontext import dumps
from dibs.model import IN_PROGRESS, PENDING, REVIEW
from dibs.wire import task_json
from dibs.worker import of_process, process_start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from dibs.board import TaskBoard
    from dibs.cli.args import Args
    from dibs.cli.context import Context
    from dibs.model import BoardTask, Event, Worker

OK, NOTHING, CANNOT_START, NO_COMMAND = 0, 3, 126, 127

SHOWN = 200
"""Columns of a task's description in the line that says what begins."""
LOOK_EVERY = 2.0
"""Seconds between two looks whether the task is still ours."""
SLICE = 0.5
"""Seconds of waiting for a task after which we look whether a signal has asked us to end."""
ENVIRONMENT_BYTES = 100_000
"""The longest value for an environment variable; Linux allows 128 KiB."""

LINGER = 30.0
"""Seconds for which a board that is away at the command's end is tried; half the lease if that is less, which leaves
the other half to whoever saves the end by hand."""

_AWAY = (BoardUnusable, OutcomeUnknown, Busy)
_OVER = (LeaseLost, WrongStatus, NotHolder, NotFound, Invalid)
"""What a verb says of a claim that is over. Invalid: the board has not got as far as its token."""
_BY_HOLDER = ("completed_activity", "submitted_activity", "failed_activity", "released_activity")
_ENDED = {
    "cancelled_activity": "was cancelled",
    "recovered_activity": "was given back",
    "released_activity": "was released",
    "completed_activity": "was completed",
    "submitted_activity": "was submitted for review",
    "failed_activity": "was failed",
}


def run(ctx: Context, args: Args) -> int:
    if args.task is not None and args.keep_going:
        raise UsageError("run: --task and --keep-going exclude each other")
    pid = os.getpid()
    own = of_process(ctx.worker.name, ctx.worker.kind, session=f"run-{pid}-{process_start(pid)}")
    board = ctx.board
    runs: list[_Run] = []
    with Signals() as signals:
        try:
            while not signals.received:
                tried = [each.task.id for each in runs if each.given_back]
                task = _claim(ctx, args, own, tried, signals)
                if task is None:
                    break
                runs.append(_Run(ctx, args, own, task))
                runs[-1].attend(signals)
                if not args.keep_going:
                    break
        finally:
            if not (runs and runs[-1].unsaved):
                _leave_nothing(board, own)
    return _report(ctx, args, runs, signals)


def _claim(ctx: Context, args: Args, own: Worker, tried: list[str], signals: Signals) -> BoardTask | None:
    """The next task, waiting for one as long as was asked for; None if there is none (or a signal came)."""
    end = time.monotonic() + (args.wait or 0)
    while not signals.received:
        left = min(SLICE, max(0.0, end - time.monotonic()))
        if args.task is not None:
            task = _claim_named(ctx, own, args.task, args.lease, left)
        elif tried:
            task = _claim_untried(ctx.board, own, args.lease, tried)
            if task is None and left:
                time.sleep(left)
        else:
            task = ctx.board.claim(own, lease=args.lease, wait=left)
        if task is not None or not left:
            return task
    return None


def _claim_named(ctx: Context, own: Worker, task_id: str, lease: float | None, wait: float) -> BoardTask | None:
    try:
        return ctx.by_id(task_id, lambda full: ctx.board.claim(own, full, lease=lease))
    except NotClaimable as error:
        reasons = error.fields.get("reasons")
        passing = isinstance(reasons, list) and all(r["code"] in ("held", "dependency", "path") for r in reasons)
        if not wait or not passing:
            raise
    time.sleep(min(wait, 0.1))
    return None


def _claim_untried(board: TaskBoard, own: Worker, lease: float | None, tried: list[str]) -> BoardTask | None:
    """The best task that this run has not given back already; a command that fails would get the same one for ever."""
    board.recover()
    for task in board.ready(own, len(tried) + 20):
        if task.id not in tried:
            try:
                return board.claim(own, task.id, lease=lease)
            except NotClaimable:
                continue
    return None


class _Run:
    """One claim and its command."""

    def __init__(self, ctx: Context, args: Args, own: Worker, task: BoardTask) -> None:
        self.ctx = ctx
        self.args = args
        self.own = own
        self.task = task
        self.code = OK
        self.given_back = False
        self.lost: str | None = None
        self.ended = False
        """The command has ended the claim by itself."""
        self.unsaved = False
        """The board was away when the command had ended."""

    def attend(self, signals: Signals) -> None:
        """Run the command to its end, and end the claim."""
        board, task = self.ctx.board, self.task
        self.ctx.note(f"dibs: {self.own.name} has {task.id}: {cut(one_line(task.description), SHOWN)}")
        try:
            child = Child(self.args.command, self._environment(), 2 if self.ctx.json else None)
        except OSError as error:
            what = f"cannot run {safe(self.args.command[0])}: {error.strerror}"
            self.code = NO_COMMAND if isinstance(error, FileNotFoundError) else CANNOT_START
            self.ctx.note(f"dibs: {what}")
            self._end(lambda: board.release(task.id, worker=self.own, token=task.token, note=what))
            self.given_back = True
            self.task = board.get(task.id)
            if self.lost is None:
                self.ctx.note(f"dibs: {self._outcome()}")
            return
        keeper = _Keeper(board, task, self.own, signals.wake)
        keeper.start()
        try:
            code = self._wait(child, keeper, signals)
        finally:
            end = time.monotonic() + min(LINGER, (task.lease or 3600.0) / 2)
            self._linger(end)
            keeper.stop()
            child.close()
        self.lost = keeper.lost
        self._linger(end)
        try:
            self._finish(code, signals)
        except _AWAY as error:
            self.unsaved = True
            raise self._saved_later(code, signals, error) from error
        self._linger(None)

    def _linger(self, end: float | None) -> None:
        """Until when a server that is away is tried again, for boards that are in one; None: as usual."""
        connections = getattr(self.ctx.board.store, "connections", None)
        if connections is not None:
            connections.patience = None if end is None else max(1.0, end - time.monotonic())

    def _saved_later(self, code: int, signals: Signals, error: DibsError) -> DibsError:
        """The command's end could not be saved: what is to be done when the board is back."""
        task, who = self.task, quoted(self.own.name)
        verb = f"release {quoted(task.id)}"
        if not signals.received and code == 0:
            verb = f"done {quoted(task.id)} 'exit 0'"
        elif not signals.received and self.args.fail:
            verb = f"fail {quoted(task.id)} {quoted(_ended(code))}"
        return BoardUnusable(
            f"the {_ended(code)}, but for {task.id} that could not be saved: {error.message}",
            hint=f"when the board is back: dibs --as {who} {verb} --token {task.token}; do it soon: the claim is over "
            "when its lease ends, and on this machine as soon as somebody claims, because this process is gone",
            **{**error.fields, "task_id": task.id, "token": task.token, "command_exit_code": code},
        )

    def _environment(self) -> dict[str, str]:
        task, own = self.task, self.own
        environ = dict(os.environ)
        environ.update(
            DIBS_TASK_ID=task.id,
            DIBS_TASK=task.description,
            DIBS_TOKEN=str(task.token),
            DIBS_BOARD=self.ctx.handed_on,
            DIBS_AGENT=own.name,
            DIBS_KIND=own.kind,
            DIBS_SESSION=own.session or "",
        )
        document = dumps(task_json(task))
        if len(document) <= ENVIRONMENT_BYTES:
            environ["DIBS_TASK_JSON"] = document
        else:
            environ.pop("DIBS_TASK_JSON", None)
            self.ctx.note(
                "dibs: the task is too long for DIBS_TASK_JSON; the command can run: "
                f"dibs show {quoted(task.id)} --json"
            )
        return environ

    def _wait(self, child: Child, keeper: _Keeper, signals: Signals) -> int:
        """The command's exit code. A lost claim, or a signal to us, ends it: politely, then not."""
        forwarded = 0
        deadline: float | None = None
        while (code := child.poll()) is None:
            if keeper.lost and deadline is None:
                self.ctx.note(f"dibs: {safe(keeper.lost)}: stopping the command")
                child.signal(signal.SIGTERM)
                deadline = time.monotonic() + GRACE
            for number in signals.received[forwarded:]:
                forwarded += 1
                child.signal(number)
                deadline = deadline or time.monotonic() + GRACE
            if deadline is not None and time.monotonic() >= deadline:
                child.signal(getattr(signal, "SIGKILL", signal.SIGTERM))
                deadline = float("inf")
            rest = None if deadline in (None, float("inf")) else max(0.0, deadline - time.monotonic())
            signals.wait(rest)
        if deadline is not None:
            child.end_group(deadline)
        return code

    def _finish(self, code: int, signals: Signals) -> None:
        board, task = self.ctx.board, self.task
        ended = _ended(code)
        self.code = code if code >= 0 else 128 - code
        if self.lost is not None:
            self.code = 1
        elif signals.received:
            stopped = signals.received[0]
            self.code = 128 + stopped
            note = f"dibs run was stopped by {_name(stopped)}"
            self._end(lambda: board.release(task.id, worker=self.own, token=task.token, note=note))
            self.given_back = True
        elif code == 0:
            self._end(lambda: board.complete(task.id, "exit 0", worker=self.own, token=task.token))
        elif self.args.fail:
            self._end(lambda: board.fail(task.id, ended, worker=self.own, token=task.token))
        else:
            self._end(lambda: board.release(task.id, worker=self.own, token=task.token, note=ended))
            self.given_back = True
        self.task = board.get(task.id)
        if self.lost is None:
            self.ctx.note(f"dibs: {ended}; {self._outcome()}")

    def _outcome(self) -> str:
        task = self.task
        if self.given_back and not self.ended and task.status is PENDING:
            return f"{task.id} was given back"
        status = "in review" if task.status is REVIEW else task.status.replace("_", " ")
        return f"{task.id} is {status}" + (" by the command" if self.ended else "")

    def _end(self, act: Callable[[], BoardTask]) -> None:
        try:
            act()
        except _OVER:
            ending = _ending(self.ctx.board, self.task)
            self.ended = _is_own(ending, self.own)
            if not self.ended:
                self.lost = _describe(self.ctx.board, self.task, ending)
                self.code = 1
                self.ctx.note(f"dibs: {safe(self.lost)}")


class _Keeper(threading.Thread):
    """Renews the lease until `stop`; if the claim ends otherwise, `lost` says how, and `wake` is called."""

    def __init__(self, board: TaskBoard, task: BoardTask, own: Worker, wake: Callable[[], None]) -> None:
        super().__init__(name="dibs-lease", daemon=True)
        self.lost: str | None = None
        self._board = board
        self._task = task
        self._own = own
        self._wake = wake
        self._enough = threading.Event()

    def stop(self) -> None:
        self._enough.set()
        self.join()

    def run(self) -> None:
        lease = self._task.lease or 3600.0
        look = min(LOOK_EVERY, lease / 6)
        renew_at = time.monotonic() + lease / 3
        while not self._enough.wait(look):
            try:
                if time.monotonic() >= renew_at:
                    self._board.renew(self._task.id, worker=self._own, token=self._task.token)
                    renew_at = time.monotonic() + lease / 3
                    continue
                if _is_same_claim(self._board.get(self._task.id), self._task):
                    continue
            except _OVER:
                pass
            except Exception:
                continue  # the disk is full, or somebody keeps the board locked: try again, there is time
            self._over()
            return

    def _over(self) -> None:
        try:
            ending = _ending(self._board, self._task)
            if _is_own(ending, self._own):
                return
            self.lost = _describe(self._board, self._task, ending)
        except (DibsError, OSError):
            self.lost = f"task {self._task.id} is no longer yours"
        self._wake()


def _ending(board: TaskBoard, task: BoardTask) -> Event | None:
    """The event that ended this claim; None where the changelog does not have it, or not even the claim."""
    from dibs.copying import is_dialect

    # A dialect's tokens are times, and its events are numbered by their lines.
    after = 0 if is_dialect(board) else (task.token or 1) - 1
    with board.store.read() as tx:  # not `changelog`, which waits until the other tasks' events are settled, too
        events = iter(tx.events(after, 2**31, task.id))
    if not any(_is_beginning(event, task) for event in events):
        return None
    return next((e for e in events if e.action in _ENDED or "status" in (e.data or {}).get("set", ())), None)


def _is_beginning(event: Event, task: BoardTask) -> bool:
    """Is this the event of this very claim? Not if only its number is the same."""
    if event.action != "claimed_activity" or event.worker != task.assigned_to:
        return False
    holder = (event.data or {}).get("set", {}).get("holder")
    if holder is not None and task.holder is not None:
        return bool(holder.get("session") == task.holder.session)
    return abs(event.time - (task.claimed_at or 0.0)) < 1.0


def _is_same_claim(now: BoardTask, task: BoardTask) -> bool:
    others = now.holder is not None and task.holder is not None and not now.holder.is_same(task.holder)
    return now.status is IN_PROGRESS and now.token == task.token and not others


def _is_own(ending: Event | None, own: Worker) -> bool:
    return ending is not None and ending.worker == own.name and ending.action in _BY_HOLDER


def _describe(board: TaskBoard, task: BoardTask, ending: Event | None) -> str:
    if ending is None:
        return f"task {task.id} is no longer yours: {_unrecorded(board, task)}"
    why = f": {one_line(ending.details)}" if ending.details else ""
    return f"task {task.id} {_ENDED.get(ending.action, 'was changed')} by {ending.worker}{why}"


def _unrecorded(board: TaskBoard, task: BoardTask) -> str:
    """Why a claim is over of whose end there is no event."""
    try:
        if _is_same_claim(board.get(task.id), task):
            return "its lease ran out"
    except NotFound:
        pass
    return "the board does not know this claim any more (it was restored from a backup, or changed by hand)"


def _ended(code: int) -> str:
    return f"command exited with {code}" if code >= 0 else f"command was ended by {_name(-code)}"


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _leave_nothing(board: TaskBoard, own: Worker) -> None:
    """Give back what the command claimed or locked in this session besides its task, and did not give back."""
    try:
        for task in board.held_by(own):
            if task.holder and task.holder.session == own.session:
                board.release(task.id, token=task.token, note="dibs run has ended")
        left = [k.pattern for k in board.locks() if k.holder.session == own.session and k.task_id is None]
        if left:
            board.unlock(left, own)
    except LeaseLost:
        pass


def _report(ctx: Context, args: Args, runs: list[_Run], signals: Signals) -> int:
    code = next((each.code for each in runs if each.code), OK)
    if not runs and signals.received:
        return 128 + signals.received[0]
    if ctx.json and args.keep_going:
        done = [task_json(each.task) | {"exit_code": each.code} for each in runs]
        ctx.emit({"tasks": done, "total": len(done), "more": False})
    elif ctx.json and runs:
        ctx.emit(task_json(runs[0].task) | {"exit_code": runs[0].code})
    elif ctx.json:
        ctx.emit({"claimed": False, "message": "nothing to claim"})
    if not runs:
        ctx.note("dibs: nothing to claim")
        return NOTHING
    if runs[-1].lost and not args.keep_going:
        ctx.note("  how it stands, and what happened: dibs show " + runs[-1].task.id)
    return code
