"""Memory of tiles: elements of fifos and buffers, with guards around them, and what designs see of it."""

from __future__ import annotations

import operator
from math import prod

import numpy as np

from .array_program import array_bytes, array_dtype, array_shape
from .errors import BadCall, SimulationError, UseAfterRelease
from .hardware import BURST_ALIGNMENT

_GUARD = 64
_GUARD_BYTE = 0xA5
_UNWRITTEN = 0xCD
"""What memory holds that nobody has written, so that reading it shows in results."""


class Region:
    """Bytes in a tile's memory, aligned as the compiler aligns buffers, with guards against writes outside of them."""

    def __init__(self, what: str, size: int) -> None:
        self.what = what
        raw = np.full(size + 2 * _GUARD + BURST_ALIGNMENT, _GUARD_BYTE, dtype=np.uint8)
        start = _GUARD + (-(raw.ctypes.data + _GUARD)) % BURST_ALIGNMENT
        self._before, self._after = raw[start - _GUARD : start], raw[start + size : start + size + _GUARD]
        self.bytes = raw[start : start + size]
        self.bytes[:] = _UNWRITTEN

    def typed(self, of_type: object, offset: int = 0) -> np.ndarray:
        """The bytes from `offset` on as an array of `of_type`."""
        return self.bytes[offset : offset + array_bytes(of_type)].view(array_dtype(of_type)).reshape(array_shape(of_type))

    def intact(self) -> bool:
        """Whether nobody has written beside the region."""
        return bool((self._before == _GUARD_BYTE).all() and (self._after == _GUARD_BYTE).all())


class Value:
    """A number that a core has at run time.

    The compiler sees its type only, so it can neither decide Python's `if` nor be an index of a Python list.
    """

    def __init__(self, number: object, index: bool = False) -> None:
        self.number = number
        self.index = index

    def __bool__(self) -> bool:
        raise BadCall("a number of the core's program decides Python's `if` or `while`; the core decides with if_ of aie.helpers.dialects")

    def __repr__(self) -> str:
        return f"Value({self.number})"

    def __int__(self) -> int:
        raise BadCall("a number of the core's program is used as one of Python's; it is known only when the core runs")

    __index__ = __int__
    __float__ = __int__

    def __hash__(self) -> int:
        return id(self)

    def _with(self, other: object, operation) -> Value:
        number = other.number if isinstance(other, Value) else other
        if not isinstance(number, (int, float, np.generic)):
            return NotImplemented
        left, right = self.number, number
        if isinstance(left, np.generic) and not isinstance(right, np.generic):
            right = left.dtype.type(right)
        if isinstance(right, np.generic) and not isinstance(left, np.generic):
            left = right.dtype.type(left)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            return Value(operation(left, right), self.index)


def _define(name: str, operation, swapped: bool = False) -> None:
    if swapped:
        setattr(Value, name, lambda self, other: self._with(other, lambda a, b: operation(b, a)))
    else:
        setattr(Value, name, lambda self, other: self._with(other, operation))


for _name in ("add", "sub", "mul", "floordiv", "truediv", "mod", "and_", "or_", "xor", "lshift", "rshift"):
    _plain = _name.rstrip("_")
    _define(f"__{_plain}__", getattr(operator, _name))
    _define(f"__r{_plain}__", getattr(operator, _name), swapped=True)
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _define(f"__{_name}__", getattr(operator, _name))


def number_of(value: object) -> object:
    """The number behind a `Value`, or `value` itself."""
    return value.number if isinstance(value, Value) else value


def is_number(value: object) -> bool:
    """Whether `value` is one number, of Python or of the core's program."""
    return isinstance(value, (Value, int, float, np.generic))


class View:
    """A buffer as a core's program sees it: shape and type are known, contents are read and written by index."""

    def __init__(self, region: Region, of_type: object, offset: int = 0) -> None:
        self._region, self._type, self._offset = region, of_type, offset

    shape = property(lambda self: array_shape(self._type))
    dtype = property(lambda self: array_dtype(self._type))
    obj_type = property(lambda self: self._type)

    def check(self) -> None:
        """Raises when whoever has this may not use it."""

    def region(self) -> Region:
        """Where it lies."""
        return self._region

    def array(self) -> np.ndarray:
        """Its contents; writing to them writes to the buffer."""
        self.check()
        return self._region.typed(self._type, self._offset)

    def __len__(self) -> int:
        return self.shape[0]

    def _index(self, index: object) -> tuple[int, ...]:
        indices = index if isinstance(index, tuple) else (index,)
        numbers = tuple(number_of(one) for one in indices)
        if len(numbers) != len(self.shape) or not all(isinstance(n, (int, np.integer)) for n in numbers):
            raise BadCall(f"{index!r} does not name one element of {self}; as many whole numbers as it has dimensions do")
        for number, extent in zip(numbers, self.shape):
            if not 0 <= number < extent:
                raise BadCall(f"index {numbers} is outside of {self}")
        return numbers

    def __getitem__(self, index: object) -> Value:
        where = self._index(index)
        return Value(self.array()[where])

    def __setitem__(self, index: object, value: object) -> None:
        if not is_number(value):
            raise BadCall(f"{value!r} is not a number that {self} can hold")
        where, number = self._index(index), number_of(value)
        self.array()[where] = self.dtype.type(number) if not isinstance(number, np.generic) else number.astype(self.dtype)

    def reshape(self, *shape: int) -> View:
        """The same bytes with other extents."""
        extents = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        if prod(extents) != prod(self.shape):
            raise BadCall(f"{self} cannot have extents {tuple(extents)}")
        return _Reshaped(self, np.ndarray[tuple(extents), np.dtype[self.dtype.type]])

    def __str__(self) -> str:
        return f"{self._region.what} ({'x'.join(map(str, self.shape))} {self.dtype.name})"

    __repr__ = __str__


class _Reshaped(View):
    def __init__(self, of: View, of_type: object) -> None:
        super().__init__(of._region, of_type, of._offset)
        self._of = of

    def check(self) -> None:
        self._of.check()


class Element(View):
    """An element of a fifo, usable until it is released."""

    def __init__(self, region: Region, of_type: object, offset: int, writable: bool) -> None:
        super().__init__(region, of_type, offset)
        self.released: str | None = None
        self.writable = writable

    def check(self) -> None:
        if self.released is not None:
            raise UseAfterRelease(f"{self} was released at {self.released or 'the end of the program'} and is used again")

    def __setitem__(self, index: object, value: object) -> None:
        self.check()
        super().__setitem__(index, value)


def require_intact(region: Region, by: str) -> None:
    """Raises when something beside `region` was written by `by`."""
    if not region.intact():
        raise SimulationError(f"{by} wrote outside of {region.what}")
