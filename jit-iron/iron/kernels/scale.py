"""SCALE: a factor, and what is added to the product."""

from __future__ import annotations

from design import Unsupported
from element_types import FLOATS, cpp_type, require_contiguous, require_types
from elementwise import Core, elementwise
from generation import generation
from parameters import bits, real


def ggml_op_scale(arch, input_tensors, output_tensor, op_params):
    """x * parameter 0 + parameter 1."""
    target = generation(arch)
    if len(input_tensors) != 1 or None in input_tensors:
        raise Unsupported(f"scale has one source, not {input_tensors!r}")
    (source,) = input_tensors
    for what, tensor in (("source 0", source), ("the result", output_tensor)):
        require_types(what, tensor, FLOATS)
        require_contiguous(what, tensor)
    if source.shape != output_tensor.shape:
        raise Unsupported(f"source 0 has extents {source.shape}, the result {output_tensor.shape}; they must be equal")
    macros = {"INPUT_TYPE": cpp_type(source.dtype), "OUTPUT_TYPE": cpp_type(output_tensor.dtype)}
    macros["FACTOR"] = bits(op_params, 0)
    # Without a summand ggml only multiplies, which keeps the sign of zero.
    if real(op_params, 1) != 0.0:
        macros["SUMMAND"] = bits(op_params, 1)
    return elementwise(target, Core("scale.cc", "scale", macros), [source], output_tensor)
