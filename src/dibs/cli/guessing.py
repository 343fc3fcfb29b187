"""What did they mean? The nearest known word; imported only when something was mistyped."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word with the fewest edits, if they are few for its length; a word that only goes on counts as near."""
    word = word[:60].lower()
    best: tuple[float, str] | None = None
    for candidate in known:
        edits: float = distance(word, candidate)
        bare = word.lstrip("-")
        if len(bare) >= 2 and candidate.lstrip("-").startswith(bare):
            edits = min(edits, 0.5)
        if edits <= max(1, len(candidate.lstrip("-")) // 3) and (best is None or edits < best[0]):
            best = (edits, candidate)
    return best[1] if best else None


def distance(one: str, other: str) -> int:
    """Insertions, deletions, replacements and swaps of neighbours that turn one word into the other."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        before, above, row = row, before, [i]
        for j, b in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                cost = min(cost, above[j - 2] + 1)
            row.append(cost)
    return row[-1]
