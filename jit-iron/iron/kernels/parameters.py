"""Parameters of an operation: sixteen words, which are integers or floats."""

from __future__ import annotations

import struct


def integer(op_params: bytearray, word: int) -> int:
    """Word number `word` as an integer."""
    return struct.unpack_from("<i", op_params, 4 * word)[0]


def real(op_params: bytearray, word: int) -> float:
    """Word number `word` as a float."""
    return struct.unpack_from("<f", op_params, 4 * word)[0]


def bits(op_params: bytearray, word: int) -> str:
    """Word number `word` as it is, for a macro of a core function."""
    return f"0x{struct.unpack_from('<I', op_params, 4 * word)[0]:08x}u"


def bits_of(number: float) -> str:
    """A float for a macro of a core function, exactly."""
    return f"0x{struct.unpack('<I', struct.pack('<f', number))[0]:08x}u"
