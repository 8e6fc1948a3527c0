"""What a design of this folder returns, which names a compiler and a function."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Callable


class Backend(Enum):
    IRON = auto()
    OTHER = auto()


@dataclass(frozen=True)
class Specification:
    backend: Backend
    arch: str
    input_tensors: list
    output_tensor: Any
    op_params: bytearray
    function: Callable
