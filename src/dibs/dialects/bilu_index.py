"""Document 002's derived files and its settings: `board/default.json`, `board/records.tsv`, `board/config.json`; and
what `check` finds. Pure: bytes in, bytes or findings out.

The task files are the truth. Both index files are functions of them alone, byte for byte the same for the same tasks,
and are written only when somebody asks for it. `check` compares what they say rather than how, so an index written by
another program, or moved with its directory, is not called stale for its layout.
"""

from __future__ import annotations

from dibs.dialects.bilu_words import KINDS, PRIORITIES, STATUSES, is_stem, link_to
from dibs.errors import BoardUnusable
from dibs.model import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any, Literal

    from dibs.dialects.bilu_text import TaskFile

    Severity = Literal["error", "warning"]

INDEX = "board/default.json"
RECORDS = "board/records.tsv"
CONFIG = "board/config.json"

_BREAKS = str.maketrans("\t\r\n", "   ")
_PATH = 6
"""The column of a record that says where this copy of the board lies; the other nine are the same everywhere."""

_SHOWN = 8
"""So many tasks of a circle are named; it may be as long as the board."""


class Finding(Record):
    """Something that `check` wants a person to see. An error keeps the board from being what it says; a warning is
    read in a defined way, but probably not the one that was meant. Line 0 is the file as a whole."""

    __slots__ = ("file", "line", "severity", "text")

    def __init__(self, file: str, line: int, severity: Severity, text: str) -> None:
        self.file = file
        self.line = line
        self.severity: Severity = severity
        self.text = text

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.severity}: {self.text}"


class Config:
    """What of `config.json` matters here: the priorities' weights, and the tags that are known (none: all are)."""

    __slots__ = ("findings", "tags", "weights")

    def __init__(self) -> None:
        self.weights: dict[str, int] = dict(PRIORITIES)
        self.tags: frozenset[str] = frozenset()
        self.findings: list[Finding] = []


def in_order(tasks: Iterable[TaskFile]) -> list[TaskFile]:
    """The order of both index files: the number that a file's name starts with, then the name; unnumbered ones last."""
    return sorted(tasks, key=lambda task: place(task.stem))


def place(stem: str) -> tuple[float, bytes]:
    """Where a task of this name comes in that order."""
    digits = number(stem)
    return (int(digits) if digits else float("inf")), f"{stem}.md".encode(errors="surrogatepass")


def number(stem: str) -> str:
    """The digits of the number that a name starts with; empty if it starts with none."""
    digits, dash, _ = stem.partition("-")
    return digits if dash and digits.isascii() and digits.isdigit() and len(digits) < 300 else ""


def default_json(tasks: Iterable[TaskFile]) -> bytes:
    """The index: two blanks of indent and one value a line, since its other readers go line by line."""
    from json.encoder import encode_basestring as quoted

    made = []
    for task in in_order(tasks):
        entry = _entry(task)
        made.append("  {\n" + ",\n".join(f"    {quoted(key)}: {_value(entry[key])}" for key in entry) + "\n  }")
    return ("[\n" + ",\n".join(made) + ("\n]\n" if made else "]\n")).encode(errors="replace")


def records_tsv(tasks: Iterable[TaskFile], root: str = "", weights: Mapping[str, int] = PRIORITIES) -> bytes:
    """The records: ten columns, no header. `root` is the directory that holds `board/`; the path column is absolute
    if it is. A tab or line break inside a value becomes a blank."""
    return "".join("\t".join(row) + "\n" for row in _rows(tasks, root, weights)).encode(errors="replace")


def read_config(data: bytes) -> Config:
    """The settings. What is missing or contradictory is a finding, and the document's own values hold; BoardUnusable
    if it is no JSON object."""
    config = Config()
    found = _loads(CONFIG, data)
    if not isinstance(found, dict):
        raise BoardUnusable(f"{CONFIG} is not a JSON object", path=CONFIG)
    known: dict[str, Iterable[str]] = {"statuses": STATUSES, "priorities": PRIORITIES, "kind": KINDS, "tags": ()}
    for key, names in known.items():
        part = found.get(key)
        if not isinstance(part, dict):
            severity: Severity = "warning" if key == "tags" and key not in found else "error"
            what = "is not an object" if key in found else "is missing"
            config.findings.append(Finding(CONFIG, 0, severity, f"{key!r} {what}"))
            continue
        if key == "tags":
            config.tags = frozenset(part)
            continue
        for name in part:
            if name not in names:
                config.findings.append(Finding(CONFIG, 0, "warning", f"{key!r} has {name!r}, which no task can have"))
        if key != "kind" and _are_weights(config, key, part) and key == "priorities":
            config.weights = {name: part.get(name, weight) for name, weight in PRIORITIES.items()}
            if len(set(config.weights.values())) < len(PRIORITIES):
                config.weights = dict(PRIORITIES)
    return config


def check(
    tasks: Iterable[TaskFile],
    *,
    unusable: Mapping[str, BoardUnusable] | None = None,
    config: bytes | None = None,
    index: bytes | None = None,
    records: bytes | None = None,
) -> list[Finding]:
    """Everything worth a person's attention, by file. `unusable` are the task files that did not parse, by stem; the
    others are the derived files' bytes, None where there is none. `records.tsv` may be missing: it is a cache that
    not every board keeps."""
    tasks = in_order(tasks)
    unusable = unusable or {}
    found = [
        Finding(link_to(stem), _line_of(error), "error", error.message) for stem, error in sorted(unusable.items())
    ]
    settings = Config()
    if config is not None:
        try:
            settings = read_config(config)
        except BoardUnusable as error:
            found.append(Finding(CONFIG, _line_of(error), "error", error.message))
    found += settings.findings
    stems = [*(task.stem for task in tasks), *unusable]
    found += _names(stems)
    known = set(stems)
    for task in tasks:
        found += [Finding(task.link, line, "warning", text) for line, text in task.warnings]
        found += _references(task, known, settings)
    found += _cycles(tasks)
    # An index cannot be judged while some of what it is made of cannot be read.
    if not unusable:
        found += _index(tasks, index)
        found += _records(tasks, records, settings)
    return found


def _dependency(text: str) -> str:
    return link_to(text) if is_stem(text) else text


def _entry(task: TaskFile) -> dict[str, Any]:
    return {
        "title": task.title,
        "description": task.summary,
        "priority": task.priority,
        "kind": task.kind,
        "status": task.status,
        "depends_on": [_dependency(text) for text in task.depends_on],
        "tags": task.tags,
        "link": task.link,
    }


def _value(value: str | list[str]) -> str:
    from json.encoder import encode_basestring as quoted

    if isinstance(value, str):
        return quoted(value)
    return "[\n" + "".join(f"      {quoted(v)},\n" for v in value)[:-2] + ("\n" if value else "") + "    ]"


def _rows(tasks: Iterable[TaskFile], root: str, weights: Mapping[str, int]) -> Iterator[list[str]]:
    for task in in_order(tasks):
        row = (
            task.stem,
            task.status,
            str(weights[task.priority]),
            task.priority,
            task.kind,
            task.title,
            f"{root.rstrip('/')}/{task.link}" if root else task.link,
            ",".join(task.tags),
            ",".join(_dependency(text) for text in task.depends_on),
            task.link,
        )
        yield [text.translate(_BREAKS) for text in row]


def _loads(file: str, data: bytes) -> Any:
    import json

    try:
        return json.loads(data.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        raise BoardUnusable(
            f"{file}, line {error.lineno}: not JSON: {error.msg}", path=file, line=error.lineno
        ) from None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BoardUnusable(f"{file}, line {line}: not UTF-8 text", path=file, line=line) from None
    except (RecursionError, ValueError):
        raise BoardUnusable(f"{file}: nested too deeply, or a number too long to read", path=file) from None


def _line_of(error: BoardUnusable) -> int:
    line = error.fields.get("line")
    return line if isinstance(line, int) else 0


def _are_weights(config: Config, key: str, part: Mapping[str, Any]) -> bool:
    """Whether these are different whole numbers, as both the order of statuses and the weights must be."""
    names: dict[int, str] = {}
    sound = True
    for name, weight in part.items():
        text = ""
        if type(weight) is not int:
            text = f"{key!r}: the value of {name!r} is not a whole number"
        elif weight in names:
            text = f"{key!r}: {names[weight]!r} and {name!r} have the same value {weight}"
        else:
            names[weight] = name
        if text:
            config.findings.append(Finding(CONFIG, 0, "error", text))
            sound = False
    return sound


def _names(stems: list[str]) -> Iterator[Finding]:
    seen: dict[str, str] = {}
    for stem in stems:
        if not is_stem(stem):
            yield Finding(
                link_to(stem),
                0,
                "error",
                "the file's name cannot be a task's id: use letters, digits, '.', '_' and '-' before .md",
            )
        other = seen.setdefault(stem.lower(), stem)
        if other is not stem:
            text = f"differs from {link_to(other)} only by case" if other != stem else "is there twice"
            yield Finding(link_to(stem), 0, "error", f"the id {stem!r} {text}: some file systems keep only one of them")


def _references(task: TaskFile, stems: set[str], config: Config) -> Iterator[Finding]:
    for name in task.depends_on:
        # A dependency that is no id has been warned of already, with its line.
        if name not in stems and is_stem(name):
            text = f"depends on {name}, which is not on the board; the task waits for it"
            yield Finding(task.link, task.line_of("depends_on", name), "warning", text)
    for tag in task.tags:
        if config.tags and tag not in config.tags:
            yield Finding(task.link, task.line_of("tags", tag), "warning", f"the tag {tag!r} is not in {CONFIG}")


def _cycles(tasks: list[TaskFile]) -> Iterator[Finding]:
    """One finding for each dependency that closes a circle, found by a walk with its own stack: a board may hold a
    chain far longer than Python's."""
    by_stem = {task.stem: task for task in tasks}
    done: set[str] = set()
    for root in by_stem:
        path: list[str] = []
        ahead: list[Iterator[str]] = []
        on_path: set[str] = set()
        step: str | None = root
        while step is not None or path:
            if step is None:
                done.add(path[-1])
                on_path.remove(path.pop())
                ahead.pop()
            elif step in on_path:
                here = by_stem[path[-1]]
                text = f"dependencies in a circle, none of which can start: {_circle(path, step)}"
                yield Finding(here.link, here.line_of("depends_on", step), "error", text)
            elif step in by_stem and step not in done:
                path.append(step)
                on_path.add(step)
                ahead.append(iter(by_stem[step].depends_on))
            step = next(ahead[-1], None) if ahead else None


def _circle(path: list[str], start: str) -> str:
    """The end of a path from its last visit to `start`, and back to it; a long one without its middle."""
    near = path[-_SHOWN:]
    members = near[near.index(start) :] if start in near else [start, "…", *near]
    return " -> ".join([*members, start])


def _index(tasks: list[TaskFile], data: bytes | None) -> Iterator[Finding]:
    if data is None:
        yield Finding(INDEX, 0, "warning", "there is no index; 'rebuild --write' makes it")
        return
    try:
        listed = _loads(INDEX, data)
    except BoardUnusable as error:
        yield Finding(INDEX, _line_of(error), "error", error.message)
        return
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        yield Finding(INDEX, 0, "error", "the index is not an array of objects; 'rebuild --write' makes it anew")
        return
    wanted = [_entry(task) for task in tasks]
    if listed == wanted:
        return
    named = {str(entry.get("link")): entry for entry in listed}
    different = [entry["link"] for entry in wanted if entry["link"] in named and named[entry["link"]] != entry]
    absent = [entry["link"] for entry in wanted if entry["link"] not in named]
    extra = [link for link in named if link not in {entry["link"] for entry in wanted}]
    parts = [
        f"{what} {links[0]}" + (f" and {len(links) - 1} more" if links[1:] else "")
        for what, links in (("is out of date for", different), ("lacks", absent), ("has no file for", extra))
        if links
    ] or ["lists a task twice" if len(listed) > len(named) else "is in another order"]
    yield Finding(INDEX, 0, "warning", f"stale: it {', '.join(parts)}; 'rebuild --write' renews it")


def _records(tasks: list[TaskFile], data: bytes | None, config: Config) -> Iterator[Finding]:
    if data is None:
        return
    wanted = [row[:_PATH] + row[_PATH + 1 :] for row in _rows(tasks, "", config.weights)]
    lines = data.decode("utf-8", "replace").split("\n")
    rows = [line.removesuffix("\r").split("\t") for line in (lines if lines[-1] else lines[:-1])]
    for number, row in enumerate(rows, 1):
        if len(row) != 10:
            yield Finding(RECORDS, number, "error", f"{len(row)} columns instead of 10; 'rebuild --write' renews it")
            return
    if [row[:_PATH] + row[_PATH + 1 :] for row in rows] != wanted:
        yield Finding(
            RECORDS, 0, "warning", "stale: it does not say what the task files say; 'rebuild --write' renews it"
        )
