"""The tokens of the claims that were made through this board, so that document 004's `complete(task_id)` is fenced
without saying a token."""

from __future__ import annotations

from dibs.model import FAILED, PENDING, BoardTask, Worker


class TokenMemory:
    def __init__(self) -> None:
        self._claims: dict[str, tuple[int, Worker | None]] = {}

    def remember(self, task: BoardTask) -> None:
        if task.token is not None:
            self._claims[task.id] = task.token, task.holder

    def forget(self, task: BoardTask) -> None:
        """A claim was ended by its own verb, and that is committed."""
        if task.token is not None and self.token(task.id) == task.token:
            del self._claims[task.id]

    def token(self, task_id: str) -> int | None:
        return self._claims.get(task_id, (None, None))[0]

    def holder(self, task_id: str, token: int | None) -> Worker | None:
        """Whose claim has this token, as far as this board knows."""
        known, holder = self._claims.get(task_id, (None, None))
        return holder if known == token else None


def binding(task: BoardTask, given: int | None, token: int | None) -> int | None:
    """The token to check. A remembered (not passed) token is ignored once its claim was given back and the task was not
    claimed again; if it was, the remembered one tells the late writer. (Given back too often, a task fails.)"""
    is_given_back = task.status is PENDING or (task.status is FAILED and task.holder is None)
    return None if given is None and is_given_back and task.token == token else token
