"""JSON texts in every layout that people and tools give them, for hypothesis."""

from __future__ import annotations

import json

from hypothesis import strategies as st

BLANKS = st.sampled_from(["", "", " ", "  ", "\n", "\n  ", "\r\n\t", "\n\n    "])
COMMENTS = st.sampled_from(["", "", " ", "\n  ", ' // c, { "x\n', "/* , } */", "\t/* a\n b */ ", "\r\n  //\r\n"])
NAMES = st.sampled_from(["mcpServers", "servers", "dibs2", "hooks", "a", "Stop", "PreToolUse", 'é"\\\n', ""])
NUMBERS = st.integers(-99, 99) | st.floats(allow_nan=False, allow_infinity=False, width=16)
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=6)


@st.composite
def values(draw: st.DrawFn, gaps: st.SearchStrategy[str], depth: int) -> str:
    kind = "object" if depth == 0 else draw(st.sampled_from(["scalar", "scalar", "object", "array"]))
    if kind == "scalar" or depth == 3:
        return json.dumps(draw(SCALARS), ensure_ascii=draw(st.booleans()))
    items = []
    for key in draw(st.lists(NAMES, max_size=3, unique=True)):
        name = f"{json.dumps(key)}{draw(gaps)}:{draw(gaps)}" if kind == "object" else ""
        items.append(f"{draw(gaps)}{name}{draw(values(gaps, depth + 1))}{draw(gaps)}")
    trailing = "," if items and gaps is COMMENTS and draw(st.booleans()) else ""
    opening, closing = "{}" if kind == "object" else "[]"
    return f"{opening}{','.join(items)}{trailing}{draw(gaps)}{closing}"


@st.composite
def documents(draw: st.DrawFn, gaps: st.SearchStrategy[str] = COMMENTS) -> str:
    """A text with an object at its top; with comments and trailing commas, if the gaps between its parts have some."""
    return draw(st.sampled_from(["", "\ufeff"])) + draw(gaps) + draw(values(gaps, 0)) + draw(gaps)
