"""What `dibs doctor --prove` shows: a line for each client, the reasons under it, and the next command."""

from __future__ import annotations

import sys

from dibs.cli.context import write
from dibs.cli.render import DIM, GREEN, RED, YELLOW, hint, pad, paint, wrap
from dibs.proving.trial import ADVISORY, GUARDED, NOT_SET_UP, Proof, prove

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.cli.context import Context
    from dibs.cli.doctor import Report

PATIENCE = 1.0
"""Seconds before a terminal is told what is going on."""
_COLORS = {GUARDED: GREEN, ADVISORY: YELLOW, NOT_SET_UP: DIM}


def look(ctx: Context, report: Report) -> None:
    """Try everything, and put what was seen into the report."""
    proofs = _watched(ctx, _root(ctx))
    report.facts["clients"] = [proof.as_dict() for proof in proofs]
    for proof in proofs:
        for fault in proof.faults:
            report.find("not_proved", f"{proof.client}: {fault}", f"dibs setup {proof.client}")
        for fault in proof.others:
            report.find("not_proved", f"{proof.client}: {fault}", "then again: dibs doctor --prove")


def _root(ctx: Context) -> str:
    from dibs.places import find_place, working_directory

    here = working_directory()
    return find_place(here).worktree or ctx.board.store.place or here


def _watched(ctx: Context, root: str) -> list[Proof]:
    """The proofs; meanwhile a terminal shows who is still being tried, on a line that is gone afterwards."""
    if ctx.json or sys.stderr is None or not sys.stderr.isatty():
        return prove(ctx.board, root)
    from time import monotonic

    begun = monotonic()
    shown: list[str] = []

    def tell(names: str) -> None:
        if monotonic() - begun > PATIENCE and [names] != shown[-1:]:
            shown.append(names)
            write(sys.stderr, f"\r\x1b[Kdibs: trying {names} …")
            sys.stderr.flush()

    try:
        return prove(ctx.board, root, tell)
    finally:
        if shown:
            write(sys.stderr, "\r\x1b[K")


def lines(clients: list[dict[str, Any]], width: int, color: bool) -> list[str]:
    found = []
    for client in clients:
        verdict = client["verdict"]
        what = _summary(client)
        found.append(f"  {pad(client['client'], 8)}{paint(pad(verdict, 12), _COLORS[verdict], color)}{what}".rstrip())
        for reason in client["reasons"]:
            mark = "! " if reason in client["faults"] else "- "
            told = wrap(reason, width, " " * 6)
            shade = RED if reason in client["faults"] else ""
            found += [" " * 4 + paint(mark, shade, color) + told[0][6:], *told[1:]]
        if client["next"] and verdict != NOT_SET_UP:
            found += hint(f"next: {client['next']}", width, " " * 6)
        for note in client["notes"]:
            found += [paint(line, DIM, color) for line in wrap(note, width, " " * 6)]
    return found


def _summary(client: dict[str, Any]) -> str:
    if client["verdict"] == NOT_SET_UP:
        return str(client["next"] or "")
    if client["client"] == "git":
        return "commits of what others hold are refused" if client["verdict"] == GUARDED else ""
    return "edits of what others hold are denied" if client["verdict"] == GUARDED else ""
