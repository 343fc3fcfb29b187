"""Do a tool's arguments keep to its schema? What does not is named, with what was expected and the nearest known word.

Only the parts of JSON Schema that the table in `tools` uses: types, enum, minimum, maximum, minItems, required.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from dibs.errors import Invalid

Arguments = dict[str, Any]


def unknown(message: str, word: str, known: Iterable[str]) -> Invalid:
    """The error for a word that is none of the known ones."""
    near = "".join(f"did you mean {meant}? " for meant in get_close_matches(word[:60], known, 1))
    return Invalid(message, hint=f"{near}known: {', '.join(known)}")


_TYPES: dict[str, tuple[type | tuple[type, ...], str]] = {
    "string": (str, "text"),
    "integer": (int, "a whole number"),
    "number": ((int, float), "a number"),
    "boolean": (bool, "true or false"),
    "array": (list, "a list"),
    "object": (dict, "an object"),
}


def checked(value: dict[str, Any], wanted: dict[str, Any], where: str = "") -> dict[str, Any]:
    """Arguments that keep to a schema, without those that are null; else `Invalid`, naming the argument."""
    known = wanted["properties"]
    for key in value:
        if key not in known:
            raise unknown(f"{where}there is no argument {key!r:.60}", key, known)
    given = {key: item for key, item in value.items() if item is not None}
    for key in wanted.get("required", ()):
        if key not in given:
            raise Invalid(f"{where}{key} is missing", hint=f"it must be {_wants(known[key])}", missing=key)
    return {key: _one(item, known[key], f"{where}{key}") for key, item in given.items()}


def _one(value: Any, wanted: dict[str, Any], where: str) -> Any:
    if "enum" in wanted:
        fits = value in wanted["enum"] if isinstance(value, str) else False
    else:
        fits = isinstance(value, _TYPES[wanted["type"]][0])
        if isinstance(value, bool) and wanted["type"] != "boolean":
            fits = False
        elif wanted["type"] == "integer" and isinstance(value, float) and value.is_integer():
            value, fits = int(value), True
    least, most = wanted.get("minimum"), wanted.get("maximum")
    if fits and ((least is not None and not value >= least) or (most is not None and not value <= most)):
        fits = False
    if not fits or len(value if isinstance(value, list) else ".") < wanted.get("minItems", 0):
        raise Invalid(f"{where} must be {_wants(wanted)}, not {value!r:.60}")
    if isinstance(value, list):
        return [_one(item, wanted["items"], f"{where}[{number}]") for number, item in enumerate(value)]
    return checked(value, wanted, f"{where}: ") if isinstance(value, dict) else value


def _wants(wanted: dict[str, Any]) -> str:
    if "enum" in wanted:
        return "one of " + ", ".join(wanted["enum"])
    words = _TYPES[wanted["type"]][1]
    least, most = wanted.get("minimum"), wanted.get("maximum")
    if most is not None:
        words += f" from {least} to {most}"
    elif least is not None:
        words += f" from {least} on"
    if wanted["type"] == "array":
        words += " of " + {"string": "texts", "object": "objects"}[wanted["items"]["type"]]
    return words
