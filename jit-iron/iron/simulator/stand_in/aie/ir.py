"""Stands for `aie.ir`: types and constants."""

from simulator.installation import unknown_name
from simulator.scalars import TYPES


class IntegerType:
    """Whole numbers of a width."""

    @staticmethod
    def get_signless(width: int, *_context: object):
        """That many bits."""
        return TYPES[f"i{width}"]


class IndexType:
    """Indices."""

    @staticmethod
    def get(*_context: object):
        """The type."""
        return TYPES["index"]


class F32Type:
    """32-bit floating point."""

    @staticmethod
    def get(*_context: object):
        """The type."""
        return TYPES["f32"]


class BF16Type:
    """16-bit brain floating point."""

    @staticmethod
    def get(*_context: object):
        """The type."""
        return TYPES["bf16"]


class _Attribute:
    def __init__(self, value: object) -> None:
        self.value = value

    @classmethod
    def get(cls, _type: object, value: object) -> "_Attribute":
        """A constant of a type."""
        return cls(value)


class IntegerAttr(_Attribute):
    """A whole number."""


class FloatAttr(_Attribute):
    """A floating-point number."""


__getattr__ = unknown_name(__name__, ["IntegerType", "IndexType", "F32Type", "BF16Type", "IntegerAttr", "FloatAttr"])
