"""`dibs check` and `dibs rebuild`: are a dialect's files what their document says, and the files derived from them."""

from __future__ import annotations

import sys

from dibs.cli.context import write
from dibs.cli.render import RED, YELLOW, number, paint, safe
from dibs.errors import Unsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.cli.args import Args
    from dibs.cli.context import Context
    from dibs.dialects.filestore import FileStore


def check(ctx: Context, args: Args) -> int:
    """Exit code 1 if there are errors; warnings alone are fine."""
    store = _files(ctx, "check", "dibs doctor --deep")
    findings = store.check()
    errors = sum(finding.severity == "error" for finding in findings)
    warnings = len(findings) - errors
    if ctx.json:
        ctx.emit(
            {
                "ok": not errors,
                "board": store.url,
                "errors": errors,
                "warnings": warnings,
                "findings": [
                    {"file": found.file, "line": found.line or None, "severity": found.severity, "text": found.text}
                    for found in findings
                ],
            }
        )
        return 1 if errors else 0
    for found in findings:
        place = safe(found.file) + (f":{found.line}" if found.line else "")
        severity = paint(found.severity, RED if found.severity == "error" else YELLOW, ctx.color)
        ctx.say(f"{place}: {severity}: {safe(found.text)}")
    counted = [number(count, noun) for count, noun in ((errors, "error"), (warnings, "warning")) if count]
    ctx.say(f"{safe(store.url)}: {' and '.join(counted) or 'nothing wrong'}")
    return 1 if errors else 0


def rebuild(ctx: Context, args: Args) -> int:
    store = _files(ctx, "rebuild", "nothing is to do: its indices are kept in every change")
    made = store.rebuild(args.write)
    if isinstance(made, str):
        if ctx.json:
            ctx.emit({"board": store.url, "text": made})
        else:
            write(sys.stdout, made)  # for a file or another program, so as it is
        return 0
    if ctx.json:
        ctx.emit({"board": store.url, "written": made})
        return 0
    for path in made:
        ctx.say(f"wrote {safe(path)}")
    if not made:
        ctx.say("nothing to write: the files are as they should be")
    return 0


def _files(ctx: Context, verb: str, instead: str) -> FileStore:
    from dibs.copying import is_dialect

    if not is_dialect(ctx.board):
        raise Unsupported(
            f"dibs {verb} is for boards in a dialect's own files, and this is {ctx.board.url}",
            hint=instead,
            capability=f"dibs {verb}",
        )
    store: FileStore = ctx.board.store  # type: ignore[assignment]
    return store
