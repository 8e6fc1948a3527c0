"""Tensors as designs see them: a type, four extents, four byte strides.

Needs neither numpy nor IRON, so that a design that only writes text can be built and tested without them. Extents and strides
are innermost first, as in ggml.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

# ggml's name of a type -> (elements per block, bytes per block); plain types have blocks of one element. The same table as in
# ops/src/tensor.rs, and tests/test_tensor_desc.py compares the two.
DATA_TYPES: dict[str, tuple[int, int]] = {
    "f32": (1, 4),
    "f16": (1, 2),
    "bf16": (1, 2),
    "f64": (1, 8),
    "i8": (1, 1),
    "i16": (1, 2),
    "i32": (1, 4),
    "i64": (1, 8),
    "q4_0": (32, 18),
    "q4_1": (32, 20),
    "q5_0": (32, 22),
    "q5_1": (32, 24),
    "q8_0": (32, 34),
    "q2_K": (256, 84),
    "q3_K": (256, 110),
    "q4_K": (256, 144),
    "q5_K": (256, 176),
    "q6_K": (256, 210),
    "iq2_xxs": (256, 66),
    "iq2_xs": (256, 74),
    "iq2_s": (256, 82),
    "iq3_xxs": (256, 98),
    "iq3_s": (256, 110),
    "iq1_s": (256, 50),
    "iq1_m": (256, 56),
    "iq4_nl": (32, 18),
    "iq4_xs": (256, 136),
    "tq1_0": (256, 54),
    "tq2_0": (256, 66),
    "mxfp4": (32, 17),
    "nvfp4": (64, 36),
    "q1_0": (128, 18),
    "q2_0": (64, 18),
}


@dataclass(frozen=True)
class TensorDesc:
    """Type, extents and strides of a tensor; no data. Raises ValueError when they make no sense."""

    dtype: str
    """ggml's name of the type: `f32`, `bf16`, `q4_0`."""
    shape: tuple[int, int, int, int]
    """Elements by dimension, innermost first; unused dimensions are 1."""
    stride: tuple[int, int, int, int] | None = None
    """Bytes between neighbours by dimension, innermost first. Given as None: without gaps."""

    def __post_init__(self) -> None:
        if not isinstance(self.dtype, str) or self.dtype not in DATA_TYPES:
            raise ValueError(f"type {self.dtype!r} is not known; known: {', '.join(DATA_TYPES)}")
        object.__setattr__(self, "shape", _four("extents", self.shape))
        if self.shape[0] % self.block_elements:
            raise ValueError(
                f"a row of {self.shape[0]} elements of {self.dtype} is not whole blocks of {self.block_elements}"
            )
        stride = self._without_gaps() if self.stride is None else self.stride
        object.__setattr__(self, "stride", _four("strides", stride))

    @classmethod
    def from_json(cls, tensor: object) -> TensorDesc:
        """From a tensor of the worker protocol: `{"dtype": "f32", "ne": [4 numbers], "nb": [4 numbers]}`.

        Raises ValueError when it is something else.
        """
        if not isinstance(tensor, dict) or not {"dtype", "ne", "nb"} <= tensor.keys():
            raise ValueError(f"a tensor is an object with dtype, ne and nb, not {tensor!r}")
        return cls(tensor["dtype"], tensor["ne"], tensor["nb"])

    @property
    def block_elements(self) -> int:
        """Elements per block; 1 for plain types."""
        return DATA_TYPES[self.dtype][0]

    @property
    def itemsize(self) -> int:
        """Bytes per block, which is per element for plain types."""
        return DATA_TYPES[self.dtype][1]

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    def numel(self) -> int:
        """Number of elements."""
        return self.size

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, gaps not counted."""
        return self.size // self.block_elements * self.itemsize

    @property
    def contiguous(self) -> bool:
        """Whether elements follow each other without gaps in dimension order; the stride of an extent of 1 does not matter."""
        if self.shape[0] != self.block_elements and self.stride[0] != self.itemsize:
            return False
        expected = zip(self.shape[1:], self.stride[1:], self._without_gaps()[1:])
        return all(extent == 1 or stride == wanted for extent, stride, wanted in expected)

    def _without_gaps(self) -> tuple[int, int, int, int]:
        row = self.shape[0] // self.block_elements * self.itemsize
        plane = row * self.shape[1]
        return (self.itemsize, row, plane, plane * self.shape[2])


def _four(what: str, numbers: object) -> tuple[int, int, int, int]:
    """Four non-negative whole numbers as a tuple."""
    whole = isinstance(numbers, (list, tuple)) and all(type(n) is int and n >= 0 for n in numbers)
    if not whole or len(numbers) != 4:
        raise ValueError(f"{what} of a tensor are four whole numbers, not {numbers!r}")
    return tuple(numbers)
