"""Arithmetic on numbers of a core's program, as the dialects `arith` and `memref` have it."""

from __future__ import annotations

from typing import Callable

import numpy as np
from ml_dtypes import bfloat16

from .errors import BadCall
from .memory import Value, View, number_of


class ElementType:
    """A type of such a number."""

    def __init__(self, name: str, scalar: type) -> None:
        self.name, self.scalar = name, scalar

    def __repr__(self) -> str:
        return self.name

    def __call__(self) -> ElementType:
        return self


INDEX = ElementType("index", int)
TYPES = {
    "i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "ui8": np.uint8, "ui16": np.uint16,
    "ui32": np.uint32, "f32": np.float32, "bf16": bfloat16,
}
TYPES = {"index": INDEX, **{name: ElementType(name, scalar) for name, scalar in TYPES.items()}}


def as_type(value: object, of_type: object) -> Value:
    """The number as one of `of_type`."""
    scalar = of_type.scalar if isinstance(of_type, ElementType) else np.dtype(of_type).type
    if scalar is int:
        return Value(int(number_of(value)), index=True)
    return Value(np.asarray(number_of(value)).astype(scalar)[()])


def constant(value: object, type: object = None, index: bool = False, **_options: object) -> Value:
    """A constant."""
    if index:
        return Value(int(value), index=True)
    if type is None:
        type = TYPES["i32"] if isinstance(value, int) else TYPES["f32"]
    return as_type(value, type)


def index_cast(first: object, second: object = None, to: object = None, out: object = None) -> Value:
    """Between whole numbers and indices; the type is given first, or as `to`."""
    of_type, value = (first, second) if isinstance(first, ElementType) else (to or out or second, first)
    if not isinstance(of_type, ElementType) and of_type is None:
        raise BadCall("index_cast has no type")
    return as_type(value, of_type)


class Operation:
    """An operation whose only result is its value."""

    def __init__(self, result: object = None) -> None:
        self.result = result


def constant_op(of_type: ElementType, attribute: object) -> Operation:
    """`ConstantOp`."""
    return Operation(as_type(getattr(attribute, "value", attribute), of_type))


def binary(function: Callable) -> Callable:
    """An operation of two numbers."""
    return lambda left, right, **_options: Value(function(Value(number_of(left)), right).number)


def binary_op(function: Callable) -> Callable:
    """As an operation with `.result`."""
    return lambda left, right, **_options: Operation(binary(function)(left, right))


def load(buffer: View, indices: list) -> Value:
    """An element."""
    return buffer[tuple(indices)]


def store(value: object, buffer: View, indices: list) -> None:
    """Writes an element."""
    buffer[tuple(indices)] = value
