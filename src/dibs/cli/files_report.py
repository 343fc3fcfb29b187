"""What `dibs doctor` tells of a board in a dialect's own files: the files, who holds the guard, what is wrong.

Takes no guard and changes nothing, so it answers while somebody holds one.
"""

from __future__ import annotations

import os

from dibs.cli.render import number
from dibs.times import iso, span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from dibs.cli.doctor import Report
    from dibs.dialects.filestore import FileStore
    from dibs.dialects.inspection import Part

SHOWN = 3
"""Files that the text names; --json has them all."""
SHOWN_GUARDS = 5
"""And guards: a board of document 001 has one for each work item. Those that somebody holds come first."""


def look(report: Report, store: FileStore) -> None:
    facts: dict[str, Any] = {"name": store.dialect, "document": store.document, "folder": store.folder}
    report.facts["dialect"] = facts
    parts = store.report()
    facts["parts"] = [_part(part, store.folder) for part in parts]
    for part in parts:
        name = _inside(part.path, store.folder)
        if part.stuck:
            report.find(
                "stuck_guard",
                f"{name} keeps everybody from writing, and nothing removes it: {part.stuck}",
                "ask who made it, and look whether a program still writes to this board; if none does, its owner may "
                "take it away",
            )
        elif part.kind == "guard" and part.holder is not None and part.holder.state == "dead":
            report.find(
                "dead_guard",
                f"{name} was left behind by {part.holder.name or 'somebody'}: {part.holder.why}",
                f"nothing is lost: the next change takes it over, as document {store.document} says",
            )
    if not os.access(store.folder, os.W_OK):
        report.find("read_only", f"you may not write to {store.folder}", "let its owner give you permission")
    findings = store.check()
    errors = [finding for finding in findings if finding.severity == "error"]
    facts["errors"], facts["warnings"] = len(errors), len(findings) - len(errors)
    for finding in errors[:SHOWN]:
        place = finding.file + (f", line {finding.line}" if finding.line else "")
        report.find(
            "damaged",
            f"{place}: {finding.text}",
            "put it right by hand, or bring it back from version control; then: dibs check",
        )
    if len(errors) > SHOWN:
        report.find("damaged", f"and {number(len(errors) - SHOWN, 'more error')}", "see them all: dibs check")


def changelog(report: Report, store: FileStore) -> None:
    if not os.path.exists(store.log.path):
        return
    with store.read() as tx:
        events = tx.last_event()
    report.facts["changelog"] = {"path": store.log.path, "last_event": events, "replayed": False, "agrees": None}


def _part(part: Part, folder: str) -> dict[str, Any]:
    told: dict[str, Any] = {"kind": part.kind, "path": part.path, "name": _inside(part.path, folder)}
    if part.bytes is not None:
        told["bytes"] = part.bytes
    for key in ("state", "about", "stuck"):
        if getattr(part, key):
            told[key] = getattr(part, key)
    if part.holder is not None:
        holder = part.holder.as_dict()
        holder["since"] = None if part.holder.since is None else iso(part.holder.since)
        told["holder"] = holder
    return told


def _inside(path: str, folder: str) -> str:
    return os.path.relpath(path, folder) if path.startswith(folder + os.sep) else path


def rows(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(label, text) for each line that people read."""
    from dibs.cli.doctor import size

    yield "dialect", f"{facts['name']}, document {facts['document']}, in {facts['folder']}"
    parts: list[dict[str, Any]] = facts.get("parts", [])
    files = [part for part in parts if part["kind"] == "file"]
    named = [f"{part['name']} ({size(part['bytes']) if 'bytes' in part else part['state']})" for part in files]
    more = f" and {len(named) - SHOWN:,} more" if len(named) > SHOWN else ""
    yield "files", ", ".join(named[:SHOWN]) + more
    guards = sorted((part for part in parts if part["kind"] == "guard"), key=lambda part: "holder" not in part)
    for part in guards[:SHOWN_GUARDS]:
        yield "guard", f"{part['name']} ({part['about']}): {_held(part.get('holder'))}"
    if len(guards) > SHOWN_GUARDS:
        yield "", f"and {len(guards) - SHOWN_GUARDS:,} more: dibs doctor --json"
    for part in parts:
        if part["kind"] == "notes":
            yield "notes", f"{part['name']}: {part['state']}"
    if "errors" in facts:
        counted = [number(facts[key], noun) for key, noun in (("errors", "error"), ("warnings", "warning"))
                   if facts[key]]  # fmt: skip
        yield "check", f"{' and '.join(counted)}; in full: dibs check" if counted else "nothing wrong"


def _held(holder: dict[str, Any] | None) -> str:
    if holder is None:
        return "nobody holds it"
    since = f", since {span(holder['age'])}" if holder["age"] is not None and holder["age"] >= 0 else ""
    verb = "left" if holder["state"] == "dead" else "held"
    return f"{verb} by {holder['name'] or 'somebody'}{since}, {holder['state']}: {holder['why']}"
