"""What `dibs doctor --prove` shows: a line for each client, the reasons under it, and the next command."""

from __future__ import annotations

import sys

from dibs.cli.context import write
from dibs.cli.render import DIM, GREEN, RED, YELLOW, cells, hint, pad, paint, wrap
from dibs.proving.trial import ADVISORY, GUARDED, NOT_SET_UP, Proof, prove
from dibs.setup import commands

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.cli.context import Context
    from dibs.cli.doctor import Report

PATIENCE = 1.0
"""Seconds before a terminal is told what is going on."""
_IN_FORCE = (("--require-lock", "locks required"), ("--closed", "closed"))
_COLORS = {GUARDED: GREEN, ADVISORY: YELLOW, NOT_SET_UP: DIM}


def look(ctx: Context, report: Report) -> None:
    """Try everything, and put what was seen into the report."""
    proofs = _watched(ctx, _root(ctx))
    again = commands.prove(ctx.board.url if ctx.url else None)
    report.facts["clients"] = [proof.as_dict() for proof in proofs]
    for proof in proofs:
        for fault in proof.faults:
            report.find("not_proved", f"{proof.client}: {fault}", proof.next or f"dibs setup {proof.client}")
        for fault in proof.others:
            report.find("not_proved", f"{proof.client}: {fault}", f"mend that, then again: {again}")
    missing = commands.not_found()
    report.facts["notes"] = [missing] if missing else []


def without_board(report: Report) -> None:
    """Where no board was found, a client's files may still name one."""
    from dibs.places import find_place, working_directory
    from dibs.proving.configured import named_board

    here = working_directory()
    named = named_board(find_place(here).worktree or here)
    for finding in report.findings if named else ():
        if named and finding["code"] == "no_board":
            finding["message"] = f"no board here, but {named[0]} names one"
            finding["hint"] = commands.prove(named[1])


def _root(ctx: Context) -> str:
    from dibs.places import find_place, working_directory

    here = working_directory()
    return find_place(here).worktree or ctx.board.store.place or here


def _watched(ctx: Context, root: str) -> list[Proof]:
    """The proofs; meanwhile a terminal shows who is still being tried, on a line that is gone afterwards."""
    if ctx.json or sys.stderr is None or not sys.stderr.isatty():
        return prove(ctx.board, root, is_named=bool(ctx.url))
    from time import monotonic

    begun = monotonic()
    shown: list[str] = []

    def tell(names: str) -> None:
        if monotonic() - begun > PATIENCE and [names] != shown[-1:]:
            shown.append(names)
            write(sys.stderr, f"\r\x1b[Kdibs: trying {names} …")
            sys.stderr.flush()

    try:
        return prove(ctx.board, root, tell, bool(ctx.url))
    finally:
        if shown:
            write(sys.stderr, "\r\x1b[K")


def lines(clients: list[dict[str, Any]], width: int, color: bool) -> list[str]:
    found = []
    for client in clients:
        verdict = client["verdict"]
        found += _first(client, width, color)
        for reason in client["reasons"]:
            mark = "! " if reason in client["faults"] else "- "
            told = wrap(reason, width, " " * 6)
            shade = RED if reason in client["faults"] else ""
            found += [" " * 4 + paint(mark, shade, color) + told[0][6:], *told[1:]]
        if client["next"] and (verdict != NOT_SET_UP or client["reasons"]):
            found += hint(f"next: {client['next']}", width, " " * 6)
        for note in client["notes"]:
            told = (hint if ": dibs " in note else wrap)(note, width, " " * 6)
            found += [paint(line, DIM, color) for line in told]
    return found


def _first(client: dict[str, Any], width: int, color: bool) -> list[str]:
    """The verdict with what is in force, and what that means, on a line of its own where there is no room."""
    verdict = client["verdict"]
    start = f"  {pad(client['client'], 8)}"
    state = ", ".join([verdict, *(text for option, text in _IN_FORCE if option in client["options"])])
    shown = paint(pad(state, 12), _COLORS[verdict], color)
    what = hint(_summary(client), width, " " * 6)
    room = width - cells(start) - max(12, cells(state) + 2)
    if len(what) == 1 and cells(what[0].strip()) <= room:
        gap = "  " if cells(state) >= 12 else ""
        return [f"{start}{shown}{gap}{what[0].strip()}".rstrip()]
    return [f"{start}{shown}".rstrip(), *what]


def _summary(client: dict[str, Any]) -> str:
    if client["verdict"] == NOT_SET_UP:
        return "" if client["reasons"] else str(client["next"] or "")
    if client["client"] == "git":
        return "commits of what others hold are refused" if client["verdict"] == GUARDED else ""
    return "edits of what others hold are denied" if client["verdict"] == GUARDED else ""
