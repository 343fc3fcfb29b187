"""Names for files: repo-relative paths and patterns.

Two spellings of one file must become one name (`normalise`; `fold` where the file system does not tell `A` from `a`),
and two patterns must be known to meet whenever some file lies under both (`overlaps`). A pattern covers what it matches
and everything below that. The disk is read only to follow links. Nothing here writes, or knows of locks or boards;
`places` finds the work tree. A hook imports this on every edit, so it imports only what the interpreter has loaded
anyway.
"""

from __future__ import annotations

import os
import sys

from dibs.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    S = TypeVar("S")
    T = TypeVar("T")
    Chars = tuple[tuple[int, int], ...]  # what one place in a segment may hold, as spans of code points
    Tokens = list[Chars | None]  # one entry for each place; None is a run of any length

MAX_LENGTH = 4096
# The greatest character. Names may not contain it, so that it sorts after all of them (see prefix_range).
_LAST = "\U0010ffff"
_ANY: Chars = ((1, ord(_LAST)),)
_WIDE = 2000
"""A range of more characters than this is folded to `?`, which covers it and is found without looking at each."""

BRACES = 64
"""A pattern, or a word of a shell, that its braces would expand to more than this is not expanded."""


def normalise(
    path: str, *, root: str | None = None, cwd: str | None = None, name_of: Callable[[str], str | None] | None = None
) -> str:
    """The one repo-relative name of a path or pattern, however the user spelt it.

    With `root`, relative paths start at `cwd`, links are followed, and the answer is relative to `root`, or whatever
    `name_of` calls a real path (None: it is outside); `root` is then real, too. Without `root`, the path is taken as
    repo-relative and the disk is not looked at.
    """
    _check(path)
    if os.sep == "\\":
        path = path.replace("\\", "/")
    if root is None:
        if os.path.isabs(path):
            fault = f"{_show(path)} is absolute, and there is no root to relate it to"
            raise Invalid(fault, hint="give it relative to the root of the repository")
        return _join(_collapse(path, follow=False))

    spelt = root
    if name_of is None:
        root = top = real(root)

        def name_of(located: str) -> str | None:
            return below(located, top)

    base, rest = _anchor(path, cwd, (spelt, root))
    head, tail = _literal_head(base, _collapse(rest, follow=True))
    name = name_of(real(os.path.join(base, *head)))
    if name is None and not tail and head and head[-1] != "..":
        # A link that leads out of the repository is still an entry of it, under its own name.
        name = name_of(os.path.join(real(os.path.join(base, *head[:-1])), head[-1]))
    if name is None:
        fault = f"{_show(path)} is outside the repository {_show(root)}"
        start = "" if os.path.isabs(path) else f"; relative paths start at {_show(base)}"
        raise Invalid(fault, hint=f"give a path inside it{start}")
    return _join([*_segments(name), *tail])


def below(located: str, top: str) -> str | None:
    """A real path relative to a real folder that holds it; None if it does not."""
    stem = top.rstrip(os.sep) + os.sep
    if located == top or located.startswith(stem) or _is_other_spelling(located[: len(stem)].rstrip(os.sep), top):
        return located[len(stem) :].replace(os.sep, "/")
    return None


def is_pattern(p: str) -> bool:
    return any(map(_is_glob, _segments(p)))


def overlaps(a: str, b: str) -> bool:
    """Is there any path that both cover?

    Both cover whatever lies below their matches, so once either has reached its end or a `**` with the other
    still in step, a common path exists: write out what is left of that other, then what is left of the first.
    Hence only the segments before that point have to meet, pair by pair.
    """
    for x, y in zip(_segments(a), _segments(b), strict=False):
        if x == "**" or y == "**":
            return True
        if not _segments_meet(x, y):
            return False
    return True


def covers(pattern: str, path: str) -> bool:
    """Does the pattern match this literal path, or a folder above it?"""
    if not is_pattern(pattern):
        return not pattern or path == pattern or path.startswith(pattern + "/")
    steps = [None if segment == "**" else segment for segment in _segments(pattern)]
    return _lay(steps, _segments(path), _names, to_end=False)


def literal_prefix(p: str) -> str:
    """The folders that every path covered by `p` begins with."""
    return "/".join(_split(_segments(p))[0])


def prefix_range(prefix: str) -> tuple[list[str], str, str]:
    """Where to look, in an index of literal prefixes, for all that can overlap a pattern with this one.

    Patterns overlap only if the prefix of one is the other's or an ancestor of it. So: `prefix` and its
    ancestors, and the half-open interval that holds its descendants ("0" follows "/"). The order is that of
    code points, which is also that of UTF-8 bytes: SQLite's default, PostgreSQL's `COLLATE "C"`.
    """
    if not prefix:
        return [""], "", _LAST
    parts = prefix.split("/")
    return ["/".join(parts[:i]) for i in range(len(parts) + 1)], prefix + "/", prefix + "0"


def case_insensitive(directory: str) -> bool:
    """Does the file system fold case here? Asked of names that exist; nothing is created."""
    here = real(directory)
    try:
        device = os.stat(here).st_dev
        while os.stat(here).st_dev == device:  # the folder above may be on another file system
            with os.scandir(here) as entries:
                ours = (e.name for e in entries if e.name.isascii() and e.name.swapcase() != e.name)
                name = next(ours, "")
            if name:
                return _same_entry(here, name, name.swapcase())
            if here == os.path.dirname(here):
                break
            here = os.path.dirname(here)
    except OSError:
        pass
    return sys.platform in ("darwin", "win32")


def fold(p: str) -> str:
    """The spelling under which names that differ only in case, or in how Unicode composes them, are equal.

    A class keeps its meaning: `[A-Z]` becomes `[a-z]`, and where both cases cannot be told by folding the ends of a
    range (`[A-z]` has the `_` in it), what is missing is added.
    """
    if "[" not in p:
        return _fold_text(p)
    return "/".join(_fold_segment(segment) for segment in p.split("/"))


def _fold_text(text: str) -> str:
    if text.isascii():
        return text.lower()
    from unicodedata import normalize

    return normalize("NFC", normalize("NFD", text).casefold())


def _fold_segment(segment: str) -> str:
    out = ""
    start = 0
    while (opened := segment.find("[", start)) >= 0 and (end := _class_end(segment, opened)) >= 0:
        out += _fold_text(segment[start:opened]) + _fold_class(segment[opened + 1 : end])
        start = end + 1
    return out + _fold_text(segment[start:])


def _fold_class(body: str) -> str:
    mark = "!" * (body[0] == "!")
    out = dash = ""
    images: set[str] = set()
    for first, last in _items(body[len(mark) :]):
        if first == last == "-":
            dash = "-"
        elif first == last:
            out += _fold_one(first)
        elif (first + last).isascii() and (first + last).isalpha() and first.isupper() == last.isupper():
            out += f"{first}-{last}".lower()
        else:
            low, high = sorted((ord(first), ord(last)))
            if high - low > _WIDE and not mark:
                return "?"
            out += f"{first}-{last}"
            images.update(_fold_one(chr(code)) for code in range(low, min(high, low + _WIDE) + 1))
    there = [(min(x, y), max(x, y)) for x, y in _items(out)]
    out += _ranges(sorted(c for c in images if not any(x <= c <= y for x, y in there)))
    # A dash is itself where nothing can follow, or precede; and nobody else's "!" may come to stand first.
    return f"[{mark}{dash}{out}]" if not mark and out.startswith("!") else f"[{mark}{out}{dash}]"


def _fold_one(c: str) -> str:
    """The one character that a character folds to; those that fold to several stand for themselves."""
    folded = _fold_text(c)
    return folded if len(folded) == 1 else c


def _ranges(characters: list[str]) -> str:
    """Characters in order, as a class has them."""
    out = ""
    while characters:
        first = ord(characters[0])
        run = next((i for i, c in enumerate(characters) if ord(c) != first + i), len(characters))
        out += characters[0] if run == 1 else f"{characters[0]}-{characters[run - 1]}"
        del characters[:run]
    return out


def _show(path: str) -> str:
    return repr(path if len(path) <= 120 else path[:117] + "...")


def _check(path: object) -> None:
    if not isinstance(path, str):
        raise Invalid(f"a path must be text, not {type(path).__name__}", hint="give it as a string")
    if not path:
        raise Invalid("a path cannot be empty", hint="give a path such as src/auth, or ** for everything")
    if len(path) > MAX_LENGTH:
        fault = f"the path {_show(path)} has {len(path)} characters, more than {MAX_LENGTH}"
        raise Invalid(fault, hint="name a folder above it")
    if path.isprintable():
        return
    for c in path:
        if c < " " or "\x7f" <= c <= "\x9f" or c in "\u2028\u2029":
            fault = f"the path {_show(path)} contains a control character"
        elif "\ud800" <= c <= "\udfff" or c == _LAST:
            fault = f"the path {_show(path)} contains {c!a}, which cannot be stored as text"
        else:
            continue
        raise Invalid(fault, hint="put ? in its place, or name the folder that holds it")


def real(path: str) -> str:
    try:
        return os.path.realpath(path)
    except (OSError, ValueError, RecursionError) as error:  # realpath recurses along a chain of links
        fault = f"the path {_show(path)} cannot be resolved: {error}"
        raise Invalid(fault, hint="name the file that it leads to") from error


def _anchor(path: str, cwd: str | None, tops: tuple[str, ...]) -> tuple[str, str]:
    """A directory that is certainly literal, and the rest: a root's own name may hold `[` or `*`."""
    if not os.path.isabs(path):
        try:
            return (os.getcwd() if cwd is None else cwd), path
        except OSError as error:
            fault = f"the working directory cannot be read: {error.strerror}"
            raise Invalid(fault, hint="change to one that exists, or give an absolute path") from error
    spellings = (top.replace(os.sep, "/").rstrip("/") for top in tops)
    above = [s for s in spellings if path == s or path.startswith(s + "/")]
    top = max(above, key=len) if above else os.path.splitdrive(path)[0]
    return top + "/", path[len(top) :]


def _literal_head(base: str, segments: list[str]) -> tuple[list[str], list[str]]:
    """The literal segments before the first glob, and the rest; the root of a repository is literal, too."""
    head, tail = _split(segments)
    for count in range(len(tail)):
        there = os.path.join(base, *head, *tail[: count + 1])
        if not os.path.lexists(there):
            break
        if os.path.lexists(os.path.join(there, ".git")):
            more, rest = _literal_head(there, tail[count + 1 :])
            return [*head, *tail[: count + 1], *more], rest
    return head, tail


def _is_other_spelling(path: str, top: str) -> bool:
    """Do both name one folder, on a file system that folds case?"""
    if path == top or path.casefold() != top.casefold():
        return False
    try:
        return os.path.samefile(path, top)
    except OSError:
        return False


def _collapse(path: str, *, follow: bool) -> list[str]:
    """Resolve `.` and `..`. To `follow` links, `..` among literals stays: the disk knows a link's parent."""
    out: list[str] = []
    globs = 0
    for segment in path.split("/"):
        if segment in ("", "."):
            continue
        if segment != ".." or (follow and not globs):
            out.append(segment)
            globs += _is_glob(segment)
        elif not out:
            raise Invalid(f"{_show(path)} leads out of the repository", hint="give a path below its root")
        elif out[-1] == "**":
            raise Invalid(f"{_show(path)} has .. after **, which is no one folder", hint="write it without ..")
        else:
            globs -= _is_glob(out.pop())
    return out


def _join(segments: list[str]) -> str:
    kept = [s for i, s in enumerate(segments) if s != "**" or segments[i - 1 : i] != ["**"]]
    name = "/".join(kept) or "**"
    _check(name)  # the working directory or a link's target may have brought in what the user did not write
    return name


def _segments(p: str) -> list[str]:
    return p.split("/") if p else []


def _split(segments: list[str]) -> tuple[list[str], list[str]]:
    """The literal segments before the first glob, and the rest."""
    first = next((i for i, segment in enumerate(segments) if _is_glob(segment)), len(segments))
    return segments[:first], segments[first:]


def _class_end(segment: str, start: int) -> int:
    """Where the class opened at `start` closes, or -1. As in a shell, a `]` in first place is a member."""
    first = start + 2 if segment[start + 1 : start + 2] == "!" else start + 1
    return segment.find("]", first + 1)


def _has_class(segment: str) -> bool:
    start = segment.find("[")  # if the first is never closed, no later one is
    return start >= 0 and _class_end(segment, start) >= 0


def _is_glob(segment: str) -> bool:
    return "*" in segment or "?" in segment or _has_class(segment)


def _items(body: str) -> list[tuple[str, str]]:
    """The ranges that a class is made of, as written; a single character is one from itself to itself."""
    items: list[tuple[str, str]] = []
    i = 0
    while i < len(body):
        last = i + 2 if body[i + 1 : i + 2] == "-" and i + 2 < len(body) else i
        items.append((body[i], body[last]))
        i = last + 1
    return items


def _class(body: str) -> Chars:
    negated = body[0] == "!"
    spans = [(min(ord(x), ord(y)), max(ord(x), ord(y))) for x, y in _items(body[int(negated) :])]
    if not negated:
        return tuple(spans)
    gaps: list[tuple[int, int]] = []
    free = 1
    for low, high in sorted([*spans, (ord("/"), ord("/")), (ord(_LAST) + 1, ord(_LAST) + 1)]):
        if free < low:
            gaps.append((free, low - 1))
        free = max(free, high + 1)
    return tuple(gaps)


def _literal(text: str) -> list[Chars]:
    return [((ord(c), ord(c)),) for c in text]


def _tokens(segment: str) -> Tokens:
    out: Tokens = []
    i = 0
    while i < len(segment):
        c = segment[i]
        end = _class_end(segment, i) if c == "[" else -1
        if end >= 0:
            out.append(_class(segment[i + 1 : end]))
            i = end
        elif c == "*":
            out.append(None)
        else:
            out += [_ANY] if c == "?" else _literal(c)
        i += 1
    return out


def _readings(segment: str) -> list[Tokens]:
    """A segment with a class also names its own spelling: `app/[id]/page.tsx` is a file in many projects."""
    return [_tokens(segment), [*_literal(segment)]] if _has_class(segment) else [_tokens(segment)]


def _segments_meet(x: str, y: str) -> bool:
    if x == y or not (_is_glob(x) or _is_glob(y)):
        return x == y
    return any(_tokens_meet(s, t) for s in _readings(x) for t in _readings(y))


def _tokens_meet(s: Tokens, t: Tokens) -> bool:
    if None in s and None in t:
        # Each star can swallow the other's middle: only what precedes the first and follows the last counts.
        return _starts_meet(s, t) and _starts_meet(s[::-1], t[::-1])
    stars, row = (s, t) if None in s else (t, s)
    return _lay(stars, [chars for chars in row if chars is not None], _meet, to_end=True)


def _starts_meet(s: Tokens, t: Tokens) -> bool:
    for x, y in zip(s, t, strict=False):
        if x is None or y is None:
            break
        if not _meet(x, y):
            return False
    return True


def _meet(x: Chars, y: Chars) -> bool:
    return x == y or any(a <= d and c <= b for a, b in x for c, d in y)


def _names(segment: str, name: str) -> bool:
    if segment == name or not _is_glob(segment):
        return segment == name
    return _lay(_tokens(segment), _literal(name), _meet, to_end=True)


def _lay(steps: Sequence[S | None], row: Sequence[T], fits: Callable[[S, T], bool], *, to_end: bool) -> bool:
    """Can the steps be laid along the row from its start (and `to_end`), None spanning any gap?

    The leftmost place for each run between two Nones leaves most room for the rest, so nothing is taken back.
    Answers are kept: a long run that nearly fits everywhere asks the same few questions a million times.
    """
    known: dict[tuple[S, T], bool] = {}

    def fits_here(step: S, item: T) -> bool:
        if (step, item) not in known:
            known[step, item] = fits(step, item)
        return known[step, item]

    runs: list[list[S]] = [[]]
    for step in steps:
        if step is None:
            runs.append([])
        else:
            runs[-1].append(step)
    at = 0
    for number, run in enumerate(runs):
        latest = len(row) - len(run)
        earliest = max(at, latest) if to_end and number == len(runs) - 1 else at
        if number == 0:
            latest = min(latest, 0)
        for start in range(earliest, latest + 1):
            if all(map(fits_here, run, row[start : start + len(run)])):
                at = start + len(run)
                break
        else:
            return False
    return True


def _same_entry(directory: str, name: str, other: str) -> bool:
    """Are two spellings one entry? Two hard links look alike to stat, but both are listed."""
    try:
        there = os.lstat(os.path.join(directory, other))
    except FileNotFoundError:
        return False
    here = os.lstat(os.path.join(directory, name))
    return os.path.samestat(here, there) and other not in os.listdir(directory)


# -- braces


def braces(path: str) -> list[str]:
    """What a shell makes of `{a,b}` and `{1..3}` in a path or pattern: one for each. Braces around anything else are
    characters like any other."""
    _check(path)
    done: list[str] = []
    pending = [path]
    while pending:
        now = pending.pop()
        found = alternatives(now, now)
        if found is None:
            done.append(now)
            continue
        start, stop, middles = found
        pending += [now[:start] + text + now[stop:] for text, _ in reversed(middles)]
        if len(done) + len(pending) > BRACES:
            fault = f"the braces of {_show(path)} stand for more than {BRACES} paths"
            raise Invalid(fault, hint="name a folder above them, or use * or ?")
    return done


def alternatives(text: str, bare: str) -> tuple[int, int, list[tuple[str, str]]] | None:
    """The first `{a,b}` or `{a..b}`: where it starts and stops, and what may stand there, as text and bare. `bare`
    is as long as the text, and has another character for each that was quoted."""
    best: tuple[int, int, list[tuple[str, str]]] | None = None
    opened: list[list[int]] = []  # for each brace that is open, where it and its commas are
    for at, c in enumerate(bare):
        if c == "{":
            opened.append([at])
        elif c == "," and opened:
            opened[-1].append(at)
        elif c == "}" and opened:
            cuts = [*opened.pop(), at]
            if best is not None and best[0] < cuts[0]:
                continue
            if len(cuts) > 2:
                spans = [(cut + 1, cuts[i]) for i, cut in enumerate(cuts[:-1], 1)]
                best = cuts[0], at + 1, [(text[a:b], bare[a:b]) for a, b in spans]
            elif made := _range(bare[cuts[0] + 1 : at]):
                best = cuts[0], at + 1, [(item, item) for item in made]
    return best


def _range(inside: str) -> list[str]:
    """`1..9`, `01..10..2`, `a..e`; nothing if it is none of these, and no more than are of use."""
    ends = inside.split("..")
    if len(ends) not in (2, 3) or len(inside) > 40:
        return []
    try:
        step = abs(int(ends[2])) or 1 if len(ends) == 3 else 1
        if all(len(end) == 1 and end.isascii() and end.isalpha() for end in ends[:2]):
            first, last = map(ord, ends[:2])
            return [chr(code) for code in _between(first, last, step)]
        first, last = int(ends[0]), int(ends[1])
    except ValueError:
        return []
    padded = any(end.lstrip("-").startswith("0") and len(end.lstrip("-")) > 1 for end in ends[:2])
    width = max(map(len, ends[:2])) if padded else 0
    return [f"{number:0{width}d}" for number in _between(first, last, step)]


def _between(first: int, last: int, step: int) -> Sequence[int]:
    numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    return numbers[: BRACES + 1]
