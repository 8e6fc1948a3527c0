"""ggml's types as IRON's arrays and the cores' C++ name them."""

from __future__ import annotations

import numpy as np
from design import Unsupported
from ml_dtypes import bfloat16
from tensor_desc import TensorDesc

# ggml's name -> (numpy's type, C++ type of aie_api).
_TYPES = {
    "i8": (np.int8, "int8"),
    "i16": (np.int16, "int16"),
    "i32": (np.int32, "int32"),
    "bf16": (bfloat16, "bfloat16"),
    "f32": (np.float32, "float"),
}
FLOATS = ("f32", "bf16")
INTEGERS = ("i8", "i16", "i32")


def numpy_type(dtype: str) -> type:
    """The scalar type of a buffer of ggml's type `dtype`."""
    return _known(dtype)[0]


def cpp_type(dtype: str) -> str:
    """The C++ type of a buffer of ggml's type `dtype`."""
    return _known(dtype)[1]


def array_type(elements: int, dtype: str) -> type:
    """A flat array of `elements`, as fifos and runtime sequences declare it."""
    return np.ndarray[(elements,), np.dtype[numpy_type(dtype)]]


def require_types(what: str, tensor: TensorDesc, allowed: tuple[str, ...]) -> None:
    """Raises Unsupported when the tensor's type is not one of `allowed`."""
    if tensor.dtype == "f16" and "bf16" in allowed:
        raise Unsupported(
            f"{what} is f16, which the cores do not compute; the backend passes it as f32 or bf16 (GGML_HSA_F16), so give it as that"
        )
    if tensor.dtype not in allowed:
        raise Unsupported(f"{what} is {tensor.dtype}; possible: {', '.join(allowed)}")


def require_contiguous(what: str, tensor: TensorDesc) -> None:
    """Raises Unsupported when elements of the tensor do not follow each other."""
    if not tensor.contiguous:
        raise Unsupported(
            f"{what} with extents {tensor.shape} has strides {tensor.stride} (bytes), and this design reads tensors without "
            "gaps; the backend packs such a source before the kernel"
        )


def _known(dtype: str) -> tuple[type, str]:
    if dtype not in _TYPES:
        raise Unsupported(f"no core has elements of type {dtype}; possible: {', '.join(_TYPES)}")
    return _TYPES[dtype]
