"""The error tree: stable codes, builtins that users catch, and no advice to destroy anything."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import dibs
from dibs import errors

KINDS = sorted(
    (kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.DibsError)),
    key=lambda kind: kind.__name__,
)
CODES = {
    "AmbiguousId": ("ambiguous_id", LookupError),
    "BoardMoved": ("board_moved", OSError),
    "BoardUnusable": ("board_unusable", OSError),
    "Busy": ("busy", TimeoutError),
    "DependencyCycle": ("cycle", ValueError),
    "DibsError": ("error", Exception),
    "Duplicate": ("duplicate", ValueError),
    "Invalid": ("invalid", ValueError),
    "LeaseLost": ("lease_lost", PermissionError),
    "NoBoard": ("no_board", FileNotFoundError),
    "NotAllowed": ("not_allowed", PermissionError),
    "NotClaimable": ("not_claimable", ValueError),
    "NotFound": ("not_found", LookupError),
    "NotHolder": ("not_holder", PermissionError),
    "OutcomeUnknown": ("outcome_unknown", OSError),
    "Unsupported": ("unsupported", NotImplementedError),
    "WrongStatus": ("wrong_status", ValueError),
}
HARM = re.compile(
    r"\b(rm|delet\w+|remove (it|the)|eras\w+|wipe\w*|purge\w*|steal\w*|--force|kill\w*|overwrite (it|the))\b", re.I
)


def test_every_code_is_known_and_stays() -> None:
    assert {kind.__name__: kind.code for kind in KINDS} == {name: code for name, (code, _) in CODES.items()}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_is_the_builtin_that_a_user_would_catch(kind: type[errors.DibsError]) -> None:
    assert issubclass(kind, CODES[kind.__name__][1])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_carries_message_hint_and_fields(kind: type[errors.DibsError]) -> None:
    error = kind("what and why", hint="the way out", task_id="t1")
    assert str(error) == "what and why (the way out)"
    assert error.as_dict() == {"code": kind.code, "message": "what and why", "hint": "the way out", "task_id": "t1"}
    assert kind("only this").hint == ""
    assert kind().message


def test_no_message_in_the_source_advises_to_delete_or_steal() -> None:
    """Every text inside a call of an error class, wherever it is raised."""
    names = {kind.__name__ for kind in KINDS}
    assert dibs.__file__ is not None
    texts = []
    for path in sorted(Path(dibs.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
                for part in ast.walk(node):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        texts.append((f"{path.name}:{part.lineno}", part.value))
    assert len(texts) > 100
    assert [(where, text) for where, text in texts if HARM.search(text)] == []
