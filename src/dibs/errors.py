"""The error tree.

Every error carries a stable `code`, a finished `message` (what happened and why), a `hint` (the way out) and the
`fields` a program would want. Each subclasses the builtin that a Python user would catch. No message ever
suggests deleting data or taking what another worker holds.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.model import Lock


def quoted(text: str) -> str:
    """A word as a shell reads it. Hints are commands that agents run as they stand, so whatever in them came from a
    board or a user goes through this."""
    if text and all(c.isascii() and (c.isalnum() or c in "_@%+=:,./-") for c in text):
        return text
    return "'" + text.replace("'", "'\\''") + "'"


class DibsError(Exception):
    """Something dibs refused or could not do."""

    code = "error"

    def __init__(self, message: str = "", *, hint: str = "", **fields: object) -> None:
        self.message = message or (self.__doc__ or "").strip()
        self.hint = hint
        self.fields = fields
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def as_dict(self) -> dict[str, object]:
        """The `error` object that `--json` prints."""
        return {"code": self.code, "message": self.message, "hint": self.hint, **self.fields}


class Invalid(DibsError, ValueError):
    """Input that no board accepts: too long, malformed, contradictory."""

    code = "invalid"


class NotFound(DibsError, LookupError, ValueError):
    """An id that is not on the board."""

    code = "not_found"


class AmbiguousId(DibsError, LookupError, ValueError):
    """A prefix that several ids share."""

    code = "ambiguous_id"


class Duplicate(DibsError, ValueError):
    """An id that is already on the board."""

    code = "duplicate"


class DependencyCycle(DibsError, ValueError):
    """Edges that would make a task wait for itself."""

    code = "cycle"


class WrongStatus(DibsError, ValueError):
    """The task's status does not allow this verb."""

    code = "wrong_status"


class NotClaimable(DibsError, ValueError):
    """A named task that cannot be claimed now; `fields["reasons"]` says by what."""

    code = "not_claimable"
    raced = False
    """Did a worker by hand take it between our look and our claim? Choosing again then finds another one."""


class NotHolder(DibsError, PermissionError):
    """Somebody else holds the task."""

    code = "not_holder"


class NotAllowed(DibsError, PermissionError):
    """The worker's role does not allow this verb on this board."""

    code = "not_allowed"


class LeaseLost(DibsError, PermissionError):
    """The caller's claim ended; a newer one may exist. Nothing was changed."""

    code = "lease_lost"


class Busy(DibsError, TimeoutError):
    """A path that somebody else holds, or a board that stayed locked too long."""

    code = "busy"

    conflicts: list[Lock] = []


class NoBoard(DibsError, FileNotFoundError):
    """There is no board here."""

    code = "no_board"


class BoardUnusable(DibsError, OSError):
    """The file is foreign, damaged, half-made, too new, or on a file system that cannot keep it. It was not touched."""

    code = "board_unusable"


class BoardMoved(DibsError, OSError):
    """The board was moved (`dibs move`); `fields["to"]` is where it is now. Nothing was changed."""

    code = "board_moved"


class OutcomeUnknown(DibsError, OSError):
    """The change was made, but the disk did not confirm that it would survive a power failure."""

    code = "outcome_unknown"


class Unsupported(DibsError, NotImplementedError):
    """This kind of board cannot express that."""

    code = "unsupported"
