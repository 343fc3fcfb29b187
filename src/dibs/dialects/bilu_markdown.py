"""The little Markdown that document 002's task files need: lines, code fences, list items, links. Pure functions."""

from __future__ import annotations

BLANK = " \t\r\n\v\f"
"""What may stand around a value. Less than str.strip takes: other blanks are part of somebody's text."""


def split_lines(text: str) -> list[str]:
    """Lines with their ends. Only a line feed ends one here, unlike in str.splitlines."""
    parts = text.split("\n")
    lines = [part + "\n" for part in parts[:-1]]
    return [*lines, parts[-1]] if parts[-1] else lines


def bare(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")


def is_heading(text: str) -> bool:
    return text[:1] == "#" and text.lstrip("#")[:1] in ("", " ", "\t")


def fence_of(line: str) -> tuple[str, int, bool] | None:
    """The character and length of a code fence, and whether it could close one."""
    text = line.lstrip(" ")
    mark = text[:1]
    if mark not in ("`", "~") or len(line) - len(text) > 3:
        return None
    rest = text.lstrip(mark)
    if (length := len(text) - len(rest)) < 3 or (mark == "`" and "`" in rest):
        return None
    return mark, length, not rest.strip(BLANK)


def fenced(lines: list[str]) -> list[bool]:
    """Which lines are in a code fence, its own two lines included."""
    fences = [
        (i, fence) for i, line in enumerate(lines) if ("```" in line or "~~~" in line) and (fence := fence_of(line))
    ]
    inside = [False] * len(lines)
    hopeless: dict[str, int] = {}
    at = 0
    while at < len(fences):
        start, (mark, length, _) = fences[at]
        at += 1
        if length >= hopeless.get(mark, length + 1):
            continue
        for j in range(at, len(fences)):
            end, (other, size, closes) = fences[j]
            if closes and other == mark and size >= length:
                inside[start : end + 1] = [True] * (end + 1 - start)
                at = j + 1
                break
        else:
            # Nothing below closes a fence this long, so no need to look again for later ones: keeps this linear.
            hopeless[mark] = length
    return inside


def item_of(text: str) -> str:
    """What follows the bullet of a list item, or nothing. A bare dash needs no blank after it, as elsewhere."""
    if (text[:1] == "-" and text[1:2] != "-") or text[:2] in ("* ", "+ "):
        return text[1:].strip(BLANK)
    return ""


def commas(item: str) -> list[str]:
    return [part for text in item.split(",") if (part := text.strip(BLANK))]


def link_targets(item: str) -> list[str]:
    """Where the inline links in a text point, without their tooltips."""
    made = []
    at = item.find("](") if "[" in item else -1
    while at >= 0:
        end = item.find(")", at)
        text = item[at + 2 : end if end > 0 else len(item)].strip(BLANK)
        if text[:1] == "<":
            text = text[1:].partition(">")[0]
        elif text[-1:] in ("'", '"'):
            text = text.split()[0]
        if text:
            made.append(text)
        at = item.find("](", at + 2)
    return made
