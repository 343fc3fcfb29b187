"""Text for people: made safe, cut to the screen, aligned, coloured. Knows nothing of boards.

Everything that came from outside (descriptions, names, paths, results) passes through `safe` or `one_line`, so that no
task can move the cursor, change colours, reverse the reading direction or fake a line of dibs' own output.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from dibs.model import BoardTask

    Cell = str | tuple[str, str]

RED, GREEN, YELLOW, MAGENTA, BOLD, DIM = "31", "32", "33", "35", "1", "2"


def safe(text: str) -> str:
    """The text with every control, format and other unprintable character shown as its escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(character: str) -> str:
    if character == "\n":
        return "\\n"
    if character == "\t":
        return "\\t"
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def one_line(text: str) -> str:
    """The text on one line: runs of blanks and line ends become one blank, the rest is made safe."""
    return safe(" ".join(text.split()))


def cells(text: str) -> int:
    """Columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def cut(text: str, width: int) -> str:
    """The text, or as much of it as fits with an ellipsis."""
    if cells(text) <= width:
        return text
    kept = text[: max(0, width - 1)]
    while kept and cells(kept) > width - 1:
        kept = kept[:-1]
    return kept.rstrip() + "…"


def pad(text: str, width: int) -> str:
    return text + " " * (width - cells(text))


def wrap(text: str, width: int, indent: str = "  ") -> list[str]:
    """The text in full, each of its lines made safe, wrapped between words and indented."""
    lines = []
    room = max(10, width - len(indent))
    for source in text.replace("\r\n", "\n").expandtabs(4).split("\n"):
        line = safe(source.rstrip())
        while cells(line) > room:
            at = room
            while cells(line[:at]) > room:
                at -= 1
            blank = line.rfind(" ", 1, at + 1)
            if blank <= 0 or not line[:blank].strip():
                lines.append(indent + line[:at])
                line = line[at:]
            else:
                lines.append(indent + line[:blank].rstrip())
                line = line[blank + 1 :]
        lines.append((indent + line).rstrip())
    return lines


def hint(text: str, width: int = 80, indent: str = "  ") -> list[str]:
    """What to do next, made safe, indented and wrapped where it pauses, so that a command stays on one line if it can.

    No word is ever broken, for it may be a path; nor is what is quoted for a shell, for the rest of it alone on a line
    would read as a command.
    """
    clauses: list[list[str]] = [[]]
    opened = False
    for word in safe(text).split(" "):
        joined, bare = opened, word
        if opened or word[:1] == "'":
            for escaped in ("'\\''", "'\"'\"'"):  # a quote within, as `quoted` and as `shlex` write it
                bare = bare.replace(escaped, "")
            opened ^= bare.count("'") % 2 == 1
        if joined:
            clauses[-1][-1] += " " + word
        else:
            clauses[-1].append(word)
        if opened:
            continue
        if word[-1:] in (";", ":", ","):
            clauses.append([])
    lines = [indent]
    room = width - len(indent)
    for clause in clauses:
        whole = " ".join(clause)
        for part in [whole] if cells(whole) <= room else clause:
            if lines[-1].strip() and cells(lines[-1]) + 1 + cells(part) > width:
                lines.append(indent)
            lines[-1] += part if not lines[-1].strip() else f" {part}" * bool(part)
    return lines


def paint(text: str, color: str, on: bool) -> str:
    return f"\x1b[{color}m{text}\x1b[0m" if on and color else text


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    width: int,
    *,
    caps: Sequence[int],
    right: Sequence[int] = (),
    color: bool = False,
) -> list[str]:
    """Aligned lines under a header. Cells are safe text, or (text, colour); the last column takes what is left.

    `caps` are the most that each other column may have; columns without any content are left out. A negative cap is a
    column that is never cut, for half an id is of no use: after what is too long for it the row goes on in a new line.
    """
    last = len(header) - 1
    texts = [[cell if isinstance(cell, str) else cell[0] for cell in row] for row in rows]
    widths = []
    for at in range(last):
        used = max((cells(row[at]) for row in texts), default=0)
        widths.append(min(abs(caps[at]), max(used, len(header[at]))) if used else 0)
    while sum(w + 2 for w in widths if w) > width - 20:
        narrower = max((w for w, cap in zip(widths, caps, strict=False) if cap > 0), default=0)
        if narrower <= 4:
            break
        widths[next(at for at, w in enumerate(widths) if w == narrower and caps[at] > 0)] -= 1
    shown = [at for at in range(last) if widths[at]]
    room = max(8, width - sum(widths[at] + 2 for at in shown))
    lines = []
    for number in range(-1, len(rows)):
        parts: list[str] = []
        for at in (*shown, last):
            text = header[at] if number < 0 else texts[number][at]
            if at == last:
                text = cut(text, room)
            elif caps[at] > 0:
                text = cut(text, widths[at])
            elif cells(text) > widths[at]:
                lines.append("  ".join([*parts, text]))
                parts = [" " * widths[before] for before in shown[: shown.index(at) + 1]]
                continue
            if at in right:
                text = " " * (widths[at] - cells(text)) + text
            elif at != last:
                text = pad(text, widths[at])
            cell: Cell = (header[at], DIM) if number < 0 else rows[number][at]
            parts.append(text if isinstance(cell, str) else paint(text, cell[1], color))
        lines.append("  ".join(parts).rstrip())
    return lines


# -- tasks

_SHOWN = {
    "pending": ("ready", GREEN),
    "in_progress": ("in progress", YELLOW),
    "review": ("review", MAGENTA),
    "completed": ("completed", ""),
    "failed": ("failed", RED),
    "cancelled": ("cancelled", DIM),
}


def status(task: BoardTask, held: bool = False) -> tuple[str, str]:
    """What to call a task's status, and its colour: a pending task is ready, waiting or blocked. `held`: somebody else
    has its files."""
    if task.status == "pending":
        if task.open_blockers:
            return "blocked", RED
        if task.unmet or held:
            return "waiting", DIM
    return _SHOWN[task.status]


def tasks(found: Sequence[BoardTask], width: int, color: bool, held: Collection[str] = ()) -> list[str]:
    """The table that `list`, `ready` and a claim of several show. `held`: ids of those whose files another has."""
    rows: list[list[Cell]] = []
    for task in found:
        who = safe(task.assigned_to or "") or ("" if task.reserved == "any" else f"({task.reserved})")
        priority = str(task.priority) if task.priority else ""
        rows.append([task.id, status(task, task.id in held), priority, who, one_line(task.description)])
    return table(("ID", "STATUS", "PRI", "WHO", "TASK"), rows, width, caps=(-24, 11, 11, 16), right=(2,), color=color)


def number(count: int, noun: str) -> str:
    """`1 task`, `5,000 tasks`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def clock(moment: float) -> str:
    """A moment as people here read it: local time, with the date unless it is today."""
    import time

    there, now = time.localtime(moment), time.localtime()
    if there[:3] == now[:3]:
        return time.strftime("%H:%M", there)
    return time.strftime("%Y-%m-%d %H:%M", there)
