"""Paths as callers write them, from wherever they stand, as the patterns under which every worktree knows them."""

from __future__ import annotations

from dibs.errors import Invalid
from dibs.places import Ground, working_directory
from dibs.rules.paths import fold, normalise

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.stores.base import Store


class PathNames:
    def __init__(self, store: Store) -> None:
        self._place = store.place
        # In a dialect's files, names are as people write them.
        self._may_fold = not hasattr(store, "dialect")
        self._ground: Ground | None = None

    @property
    def ground(self) -> Ground | None:
        """How files are named on this board; None where there is no disk to look at."""
        if self._ground is None and self._place is not None:
            self._ground = Ground(self._place)
        return self._ground

    @property
    def case_insensitive(self) -> bool:
        """Do names that differ in case name one file?"""
        ground = self.ground
        return ground is not None and self._may_fold and ground.folds

    @property
    def worktree(self) -> str | None:
        """The git worktree of this board's repository, or the clone of it, that the process stands in."""
        ground = self.ground
        return None if ground is None else ground.worktree(working_directory())

    def pattern(self, path: str) -> str:
        return self.spellings(path)[0]

    def spellings(self, path: str) -> list[str]:
        """The pattern and, where it is folded, the one that whoever does not fold would have made of the path."""
        if not isinstance(path, str):
            raise Invalid(f"a path must be text, not {type(path).__name__}")
        if self.ground is None:
            return [normalise(path)]
        name = self.ground.name(path, working_directory())
        if self.case_insensitive and (folded := normalise(fold(name))) != name:
            return [folded, name]
        return [name]
