"""A small explicit-state search: every interleaving of a few processes, with a crash possible at every step.

A model says which moves a state allows. A state is one hashable value: what is shared, and where each process is. The
search visits every state that can be reached, breadth first, so that the trace to a flaw is the shortest there is.

    found = explore(model)
    found.overlap    the moves that lead to two holders, or None
    found.wedge      the moves to a state from which nobody can ever acquire again (without a further crash), or None
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from typing import NamedTuple, Protocol

State = Hashable


class Move(NamedTuple):
    label: str
    to: State
    acquires: bool = False
    crash: bool = False


class Model(Protocol):
    def start(self) -> State: ...

    def moves(self, state: State) -> Iterator[Move]: ...

    def holders(self, state: State) -> int: ...


class Found(NamedTuple):
    states: int
    overlap: list[str] | None
    wedge: list[str] | None


def explore(model: Model, most: int = 3_000_000) -> Found:
    first = model.start()
    came: dict[State, tuple[State, str] | None] = {first: None}
    backward: dict[State, list[State]] = {}
    can_acquire: set[State] = set()
    queue = deque([first])

    def trace(state: State) -> list[str]:
        labels = []
        while (step := came[state]) is not None:
            state, label = step
            labels.append(label)
        return labels[::-1]

    while queue:
        state = queue.popleft()
        if model.holders(state) > 1:
            return Found(len(came), trace(state), None)
        for move in model.moves(state):
            if move.to not in came:
                assert len(came) < most, "the model is not finite"
                came[move.to] = (state, move.label)
                queue.append(move.to)
            if move.acquires:
                can_acquire.add(state)
            if not move.crash:
                backward.setdefault(move.to, []).append(state)
    # Whoever can get to a state in which somebody can acquire is not wedged.
    pending = list(can_acquire)
    while pending:
        for before in backward.get(pending.pop(), ()):
            if before not in can_acquire:
                can_acquire.add(before)
                pending.append(before)
    stuck = next((state for state in came if state not in can_acquire), None)
    return Found(len(came), None, None if stuck is None else trace(stuck))
