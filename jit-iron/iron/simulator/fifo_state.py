"""A fifo's elements in the memory of one tile, and who holds them."""

from __future__ import annotations

from collections import deque

from .array_program import Fifo
from .errors import BadCall, LimitExceeded, caller
from .memory import Element, Region
from .scheduler import current


class Slot:
    """One element. It is full when everything that fills it has done so, and free when everything that empties it has."""

    def __init__(self, region: Region) -> None:
        self.region = region


class Pool:
    """The elements of a fifo in one tile, or of the fifos that a link joins.

    `fillers` and `drainers` are how many parties fill and empty each element: several for a join and a split.
    """

    def __init__(self, what: str, size: int, depth: int, fillers: int = 1, drainers: int = 1) -> None:
        self.what, self.depth, self.size = what, depth, size
        self.slots = [Slot(Region(f"element {index} of {what}", size)) for index in range(depth)]
        self.filled = [0] * fillers
        """How many elements each party has filled since the start."""
        self.drained = [0] * drainers

    def free(self, filler: int, held: int = 0) -> int:
        """How many elements this party may fill, those that it holds not counted."""
        return min(self.drained) + self.depth - self.filled[filler] - held

    def full(self, drainer: int, held: int = 0) -> int:
        """How many elements this party may take, those that it holds not counted."""
        return min(self.filled) - self.drained[drainer] - held

    def to_fill(self, filler: int, ahead: int = 0) -> Slot:
        """The element that this party fills next."""
        return self.slots[(self.filled[filler] + ahead) % self.depth]

    def to_drain(self, drainer: int, ahead: int = 0) -> Slot:
        """The element that this party takes next."""
        return self.slots[(self.drained[drainer] + ahead) % self.depth]

    @property
    def waiting(self) -> int:
        """Elements that are full."""
        return max(min(self.filled) - min(self.drained), 0)


class CorePort:
    """A core's side of a fifo: acquire and release."""

    def __init__(self, fifo: Fifo, pool: Pool, produces: bool, depth: int) -> None:
        self.fifo, self.pool, self.produces, self.depth = fifo, pool, produces, depth
        self.held: deque[Element] = deque()
        self.element_type = fifo.of_type

    @property
    def _role(self) -> str:
        return "producer" if self.produces else "consumer"

    def acquire(self, count: int) -> object:
        """The first `count` elements held, taking as many more as that needs: the element itself for 1, else a list."""
        count = _whole(count, "acquire")
        if count > self.depth:
            raise LimitExceeded(f"the {self._role} of fifo {self.fifo.name} acquires {count} elements; its depth is {self.depth}")
        missing = count - len(self.held)
        if missing > 0:
            available = self.pool.free if self.produces else self.pool.full
            kind = "free" if self.produces else "full"
            current().wait(
                lambda: available(0, len(self.held)) >= missing,
                f"the {self._role} of fifo {self.fifo.name} waits for {missing} {kind} element{'s' * (missing > 1)} of {self.depth}",
            )
            for _ in range(missing):
                take = self.pool.to_fill if self.produces else self.pool.to_drain
                self.held.append(Element(take(0, len(self.held)).region, self.element_type, 0, self.produces))
        elements = list(self.held)[:count]
        return elements[0] if count == 1 else elements

    def release(self, count: int) -> None:
        """Gives back the `count` elements that were acquired first."""
        count = _whole(count, "release")
        current().operations += 1
        if count > len(self.held):
            raise BadCall(
                f"the {self._role} of fifo {self.fifo.name} releases {count} elements and holds {len(self.held)}; acquire them before"
            )
        place = caller()
        for _ in range(count):
            self.held.popleft().released = place
        counters = self.pool.filled if self.produces else self.pool.drained
        counters[0] += count


def _whole(count: object, what: str) -> int:
    if not isinstance(count, int) or count < 1:
        raise BadCall(f"{what} takes a number of elements, at least 1, not {count!r}")
    return count
