"""Loops and conditions of a core's program."""

from __future__ import annotations

import sys
from typing import Iterator

from .errors import BadCall
from .memory import Value, number_of
from .scheduler import current

_MANY = 1 << 22
"""Rounds of a loop without waiting after which a core counts as lost in it."""


def range_(start, stop=None, step=None, iter_args=None, insert_yield=True) -> Iterator[object]:
    """A loop. Its variable is known to the core, not to Python."""
    if stop is None:
        start, stop = 0, start
    bounds = [number_of(bound) for bound in (start, stop, 1 if step is None else step)]
    for bound in bounds:
        if not hasattr(bound, "__index__"):
            raise BadCall(f"a loop's bounds are whole numbers, not {bound!r}")
    if bounds[2] <= 0:
        raise BadCall(f"a loop of the core has a positive step, not {bounds[2]}")
    loop = _Loop(list(iter_args or []))
    task = current()
    before, rounds = (task.operations if task else 0), 0
    for number in range(int(bounds[0]), int(bounds[1]), int(bounds[2])):
        if loop.carried:
            loop.enter()
            arguments = tuple(loop.values) if len(loop.values) > 1 else loop.values[0]
            yield Value(number, index=True), arguments, loop.results()
            loop.leave()
        else:
            yield Value(number, index=True)
        rounds += 1
        if task and rounds >= _MANY:
            if task.operations == before:
                task.wait(lambda: False, "loops without waiting for anything")
            before, rounds = task.operations, 0


class _Loop:
    """The values that a loop hands from one round to the next."""

    _open: list[_Loop] = []

    def __init__(self, values: list) -> None:
        self.carried = bool(values)
        self.values = [value if isinstance(value, Value) else Value(value) for value in values]
        self._results = [_Result(value) for value in self.values]

    def enter(self) -> None:
        _Loop._open.append(self)

    def leave(self) -> None:
        _Loop._open.remove(self)

    def results(self) -> object:
        return tuple(self._results) if len(self._results) > 1 else self._results[0]

    def give(self, values: list) -> None:
        self.values = [Value(number_of(value)) for value in values]
        for result, value in zip(self._results, self.values):
            result.number = value.number


class _Result(Value):
    """What a loop leaves behind; its number changes until the loop ends."""

    def __init__(self, value: Value) -> None:
        super().__init__(value.number, value.index)


def yield_(values: list) -> None:
    """Ends a round of a loop that hands on values."""
    if not values:
        return
    if not _Loop._open:
        raise BadCall("yield_ with values outside of a loop with iter_args")
    _Loop._open[-1].give(list(values))


class _Skip(Exception):
    pass


class _Branch:
    """A `with` block that is left at its first line unless its condition holds."""

    def __init__(self, taken: bool) -> None:
        self.taken = taken
        self._before = self._frame = None

    def __enter__(self) -> _Branch:
        if not self.taken:
            self._frame, self._before = sys._getframe(1), sys.gettrace()
            sys.settrace(lambda *_: None)
            self._frame.f_trace = self._leave
        return self

    def _leave(self, *_event: object) -> None:
        raise _Skip

    def __exit__(self, kind, _error, _trace) -> bool:
        if self.taken:
            return False
        sys.settrace(self._before)
        self._frame.f_trace = None
        if kind is _Skip:
            return True
        if kind is None:
            raise BadCall("the block of if_ or else_ begins on the line of its `with`; put it on the next")
        return False


def if_(cond, hasElse=True, insert_yield=True) -> _Branch:
    """A condition: `with if_(value == 0) as branch:`, and `with else_(branch):`."""
    return _Branch(bool(number_of(cond)))


def else_(if_op: _Branch, insert_yield=True) -> _Branch:
    """What is done when the condition does not hold."""
    return _Branch(not if_op.taken)
