"""Element types by the names that designs and core functions use."""

from __future__ import annotations

import numpy as np
from ml_dtypes import bfloat16

from .errors import BadType

_NAMES = {"bf16": bfloat16, "i8": np.int8, "i16": np.int16, "f32": np.float32, "i32": np.int32}


def str_to_dtype(name: str) -> type:
    """`bf16` and the others that IRON knows."""
    if name not in _NAMES:
        raise BadType(f"IRON knows no type {name!r}; it knows {', '.join(_NAMES)}")
    return _NAMES[name]


def dtype_to_str(dtype: object) -> str:
    """The name of an element type."""
    for name, scalar in _NAMES.items():
        if np.dtype(scalar) == np.dtype(dtype):
            return name
    raise BadType(f"IRON has no name for type {np.dtype(dtype).name}; it has {', '.join(_NAMES)}")
