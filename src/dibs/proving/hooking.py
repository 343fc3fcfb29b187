"""The trial of one client's hooks: each gets the events that the client would send it, and is judged by its answers.

    await try_hooks(proof, found, held, folder, around)         an edit and a shell write of the held path, which every
                                                                hook must deny, and an edit of the free one
    await compare(proof, hook, worker, withheld, held, ...)     does the hook act for the server's worker?

What is found is written into the `Proof`; nothing else is, and a crash leaves nothing behind.
"""

from __future__ import annotations

import os

from dibs.proving import configured, events
from dibs.proving.matching import edit_tools
from dibs.proving.running import LIMIT, Outcome, run, shell
from dibs.setup import commands
from dibs.setup.clients import CLIENTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from dibs.proving.configured import Found, Hook, Server
    from dibs.proving.trial import Held, Proof

    Asked = tuple[Hook, str, str]

MOST = 8
"""Different commands of one client that are tried; whoever has more, has not set them up with dibs."""


async def try_hooks(proof: Proof, found: Found, held: Held, folder: str, around: dict[str, str]) -> None:
    client = proof.client
    proof.hook["configured"] = found.has_hooks
    if not CLIENTS[client].enforces:
        proof.gaps.append("dibs has no hook for VS Code: its edits are not checked (to guard commits: dibs setup git)")
        return
    if not found.has_hooks:
        proof.gaps.append("no hook is set up: its edits are not checked")
        return
    missing = found.missing()
    lines = list(dict.fromkeys(hook.line for hook in found.hooks))
    proof.hook |= {"commands": lines, "not_asked_for": missing}
    if missing and found.hooks:
        proof.faults.append(f"the hook is not asked for {', '.join(missing)}: the matcher is too narrow")
    for name in dict.fromkeys(hook.name for hook in found.hooks):
        if name is not None and name != named(found.server):
            proof.faults.append(_two_workers(name, found))
    if held.by is None:
        proof.gaps.append("this board keeps no locks on files: there is nothing that a hook could deny")
        return
    shells = [events.SHELLS[client]]
    edits = [each for each in edit_tools(client) if each not in shells]
    for what, asked, path in (
        ("edit", found.asked(edits), held.path),
        ("shell write", found.asked(shells), held.path),
        ("edit", found.asked(edits), held.free),
    ):
        if asked and not await _try_case(proof, what, asked, path, held, folder, around):
            return  # the others would wait as long
        if len(asked) > MOST:
            _once(proof.faults, f"there are {len(asked)} different commands of dibs, of which {MOST} were tried")


async def _try_case(
    proof: Proof, what: str, asked: Sequence[Asked], path: str, held: Held, folder: str, around: dict[str, str]
) -> bool:
    """Ask every command about one path. Each must do as it should: every tool has those that are asked for it, and
    which of them a client hears first is its own affair. False if one did not answer."""
    client, judge = proof.client, _free_fault if path == held.free else _held_fault
    key = "passed_free" if path == held.free else f"denied_{what.replace(' ', '_')}"
    proof.hook[key] = True
    for hook, event, tool in asked[:MOST]:
        document = events.attempt(client, held.session, held.root, path, event, tool)
        outcome = await _ask(client, hook, document, folder, around)
        fault = judge(client, what, hook, outcome, held)
        proof.hook["seconds"] = max(proof.hook.get("seconds", 0.0), round(outcome.seconds, 3))
        if fault is not None:
            proof.hook[key] = False
            _once(proof.faults, fault if len(asked) == 1 else f"{fault} (asked for {tool or event})")
        if outcome.code is None:
            return False
    return True


def _once(texts: list[str], text: str) -> None:
    if text not in texts:
        texts.append(text)


async def _ask(client: str, hook: Hook, document: dict[str, Any], folder: str, around: dict[str, str]) -> Outcome:
    from dibs.jsontext import dumps

    limit = min(hook.limit or LIMIT, LIMIT)
    cwd = str(document["cwd"])
    project = {"claude": {"CLAUDE_PROJECT_DIR": cwd}, "gemini": {"GEMINI_PROJECT_DIR": cwd}}.get(client, {})
    # The words that were looked at, and not the line: a shell would put in files for an asterisk.
    line = hook.line if os.name == "nt" else commands.shell_line(hook.argv)
    try:
        return await run(shell(line), folder, cwd, {**around, **project}, dumps(document), limit)
    except OSError as error:
        return Outcome(127, "", f"{error.filename}: {error.strerror}", 0.0)


def _held_fault(client: str, what: str, hook: Hook, outcome: Outcome, held: Held) -> str | None:
    """Why the attempt on the held path was not denied as it must be."""
    reason = _denial(client, outcome)
    if reason is None:
        return f"the hook did not deny a forbidden {what}{_broken(hook, outcome)}"
    if (held.by or "") in reason:
        return None
    return f"the hook denied a forbidden {what} without naming who holds it: {reason[:200]}"


def _free_fault(client: str, what: str, hook: Hook, outcome: Outcome, held: Held) -> str | None:
    reason = _denial(client, outcome)
    if hook.requires_lock:
        if reason is None or held.free not in reason:
            return f"with --require-lock the hook did not deny an {what} that nobody locked{_broken(hook, outcome)}"
    elif reason is not None:
        return f"the hook denied an {what} of a free file: {reason[:200]}"
    elif outcome.code != 0:
        return f"the hook fails{_broken(hook, outcome)}"
    elif events.allows(client, _answer(outcome)):
        return f"the hook allows {what}s itself, and so answers the user's own permission prompt"
    return None


def _answer(outcome: Outcome) -> Any:
    try:
        return outcome.answer
    except ValueError:
        return None


def _denial(client: str, outcome: Outcome) -> str | None:
    """A denial counts only as the client would take it: in time, and with the exit code that makes it read stdout."""
    return events.denial(client, _answer(outcome)) if outcome.code == 0 else None


def _broken(hook: Hook, outcome: Outcome) -> str:
    """What was wrong with the command itself, if something was."""
    if outcome.code is None:
        return f": it did not answer within {min(hook.limit or LIMIT, LIMIT):g} s"
    if outcome.code:
        return f": it ended with exit code {outcome.code}{outcome.last_words()}"
    board = configured.board_of(hook.argv)
    if board is not None:
        from dibs.stores.postgres.addresses import public

        return f"; it looks at the board {public(board)}{outcome.last_words()}"
    return outcome.last_words()


# -- beside the server


async def compare(
    proof: Proof, hook: Hook, worker: str, withheld: str, held: Held, folder: str, around: dict[str, str]
) -> None:
    """Do the hook and the server act for one worker? If not, the agent is kept from what it locked itself."""
    outcome = await _ask(proof.client, hook, events.start(proof.client, held.session, held.root), folder, around)
    try:
        words = events.first_words(proof.client, outcome.answer)
    except ValueError:
        words = ""
    if not words.startswith("You are "):
        proof.notes.append("when a session starts, the hook does not tell the agent about the board")
        return
    other = words.removeprefix("You are ").split(" (")[0].strip('"')
    proof.hook["same_worker"] = other == worker
    if other != worker:
        proof.others.append(
            f"the hook takes the agent for {other}, the server for {worker}: the agent would be kept from its own locks"
            + (withheld or "; both must have the same DIBS_RUNTIME_DIR, or none")
        )


def named(server: Server | None) -> str | None:
    """The worker that a server is told to be."""
    return None if server is None else configured.option_of(server.argv, "--as") or server.env.get("DIBS_AGENT")


def _two_workers(name: str, found: Found) -> str:
    own = named(found.server)
    other = "the server" if found.has_server else "the agent's shell"
    act = f"acts for {own}" if own else "does not"
    return f"with --as a hook acts for {name}, {other} {act}: the agent would be kept from its own locks"
