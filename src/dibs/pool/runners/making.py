"""A runner by its name, by a command, or as it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from shutil import which

from dibs.errors import Invalid
from dibs.pool.runners.base import Runner
from dibs.pool.runners.claude import Claude
from dibs.pool.runners.codex import Codex
from dibs.pool.runners.gemini import Gemini
from dibs.pool.runners.sdk import ClaudeSdk
from dibs.pool.runners.template import Template

PRESETS = {"claude": Claude, "codex": Codex, "gemini": Gemini, "claude-sdk": ClaudeSdk}


def make_runner(spec: str | Sequence[str] | Runner, model: str | None = None, args: Iterable[str] = ()) -> Runner:
    """`claude`, `codex`, `gemini`, `claude-sdk`; or a command with placeholders (see `template`); or a runner."""
    if isinstance(spec, str):
        name = spec.strip()
        if name in PRESETS:
            return PRESETS[name](model, args)
        near = get_close_matches(name.lower(), PRESETS, 1)
        if near and which(name) is None:
            raise Invalid(
                f"there is no client {name!r:.40}, and no such program",
                hint=f"did you mean {near[0]}? known: {', '.join(PRESETS)}; or give a command",
            )
        return Template(spec, model, args)
    if isinstance(spec, list | tuple):
        return Template(spec, model, args)
    if callable(getattr(spec, "launch", None)) and callable(getattr(spec, "check", None)):
        return spec  # type: ignore[return-value,unused-ignore]
    raise Invalid(
        f"{spec!r:.80} is no agent",
        hint=f"one of {', '.join(PRESETS)}, a command (a string, or a list of words), or a runner",
    )
