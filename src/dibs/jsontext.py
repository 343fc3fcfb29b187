"""JSON without the import of `json`.

`import json` pulls in `re` and `enum`, about half of a bare interpreter's start-up time, and a hook or a claim runs
on every edit. The work is done in C by `_json` anyway, so this module calls that directly, and falls back to `json`
on an interpreter that lacks it or has changed it (the self-test below decides).

`dumps` writes compact ASCII, so hostile text cannot put control characters into a log line. `loads` reads one
document and nothing after it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _not_serialisable(value: object) -> object:
    raise TypeError(f"cannot write {type(value).__name__} as JSON")


class Scanner:
    """The attributes that the C scanner reads from its context object."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    memo: dict[str, str] = {}

    @staticmethod
    def parse_constant(name: str) -> object:
        raise ValueError(f"{name} is not JSON")


def _from_c() -> tuple[Any, Any]:
    import _json

    encode = _json.make_encoder(
        None, _not_serialisable, _json.encode_basestring_ascii, None, ":", ",", False, False, False
    )
    scan = _json.make_scanner(Scanner)  # type: ignore[arg-type]

    def dumps(value: Any) -> str:
        return "".join(encode(value, 0))

    def loads(text: str) -> Any:
        start = len(text) - len(text.lstrip(" \t\r\n"))
        try:
            value, end = scan(text, start)
        except StopIteration as stop:
            raise ValueError(f"not JSON at character {stop.value}") from None
        except SystemError:
            # The scanner wants to raise json's error, and finds that json is not imported.
            import json

            return json.loads(text)
        if text[end:].strip(" \t\r\n"):
            raise ValueError(f"text after the JSON document at character {end}")
        return value

    if loads(dumps({"a": [1, 2.5, None, True, "é\n"]})) != {"a": [1, 2.5, None, True, "é\n"]}:
        raise ImportError("the C half of json has changed")
    return dumps, loads


def _from_json() -> tuple[Any, Any]:
    import json

    encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
    decoder = json.JSONDecoder(parse_constant=Scanner.parse_constant)
    return encoder.encode, decoder.decode


try:
    _dumps, _loads = _from_c()
except Exception:
    _dumps, _loads = _from_json()


def dumps(value: Any) -> str:
    return _dumps(value)  # type: ignore[no-any-return]


def loads(text: str) -> Any:
    return _loads(text)
