"""How designs of the C++ backend are called, and what they return: the same for compiling and for simulating them.

Such a folder has a `tensor_desc.py` and a `kernel.py` of its own. Its designs take tensors as the former describes them, and return a
specification of the latter: a compiler of the backend's build system, and the function that makes the MLIR. Several are alternatives.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType
from typing import Callable

from design import Unsupported
from tensor_desc import TensorDesc

_COMPILER = "IRON"


def descriptor(folder: Path, imported: Callable[[Path], ModuleType]) -> Callable[[TensorDesc], object]:
    """How the designs of `folder` want tensors described; `imported` imports a file of it."""
    if not ((folder / "tensor_desc.py").is_file() and (folder / "kernel.py").is_file()):
        return lambda tensor: tensor
    foreign = imported(folder / "tensor_desc.py")

    def describe(tensor: TensorDesc) -> object:
        return foreign.ggml_tensor_to_tensordesc(tensor.dtype, tensor.shape, tensor.stride, tensor.contiguous)

    return describe


def specified(result: object, design: str) -> object:
    """What the design returned; of specifications, what the function of the first one for IRON makes.

    Newer versions bind all arguments to the function, older ones none. Raises Unsupported when no specification is for IRON.
    """
    alternatives = list(result) if isinstance(result, (list, tuple)) else [result]
    if not alternatives or not all(map(_is_specification, alternatives)):
        return result
    names = [getattr(one.backend, "name", str(one.backend)) for one in alternatives]
    if _COMPILER not in names:
        raise Unsupported(f"{design} is for {', '.join(names)}, not for {_COMPILER}")
    chosen = alternatives[names.index(_COMPILER)]
    if _takes_nothing(chosen.function):
        return chosen.function()
    return chosen.function(
        arch=chosen.arch,
        input_tensors=chosen.input_tensors,
        output_tensor=chosen.output_tensor,
        op_params=chosen.op_params,
    )


def _is_specification(result: object) -> bool:
    return callable(getattr(result, "function", None)) and hasattr(result, "backend")


def _takes_nothing(function: Callable) -> bool:
    """Whether the function can be called without arguments."""
    try:
        inspect.signature(function).bind()
    except TypeError:
        return False
    return True
