"""The GLU family: a function of one half of the columns times the other half.

The halves are two sources, or the two halves of the rows of one source, in either order.
"""

from __future__ import annotations

from design import Unsupported
from element_types import FLOATS, cpp_type, require_contiguous, require_types
from elementwise import Core, elementwise, elementwise_halves
from generation import generation
from parameters import bits, integer
from tensor_desc import TensorDesc


def _glu(gate: str, arch: str, input_tensors: list, output: TensorDesc, op_params: bytearray, **macros: str) -> object:
    target = generation(arch)
    given = [*input_tensors, None, None]
    first, second = given[:2]
    if first is None:
        raise Unsupported(f"{gate} has no source 0")
    sources = [first] if second is None else [first, second]
    for what, tensor in (*((f"source {i}", s) for i, s in enumerate(sources)), ("the result", output)):
        require_types(what, tensor, FLOATS)
        require_contiguous(what, tensor)
        if tensor.dtype != output.dtype:
            raise Unsupported(f"{what} is {tensor.dtype} and the result {output.dtype}; they must be equal")
    core = Core("glu.cc", "glu", {"GATE": gate, "INPUT_TYPE": cpp_type(output.dtype), **macros})
    if second is not None:
        if first.shape != second.shape or first.shape != output.shape:
            raise Unsupported(f"extents {first.shape} and {second.shape} to {output.shape}; they must be equal")
        return elementwise(target, core, [first, second], output)
    if (first.shape[0] // 2, *first.shape[1:]) != output.shape:
        raise Unsupported(f"the halves of {first.shape} are not {output.shape}")
    half = output.shape[0]
    # As in ggml, the first half is the one that passes the function, unless parameter 1 says otherwise.
    offsets = (half, 0) if integer(op_params, 1) else (0, half)
    return elementwise_halves(target, core, first, offsets, output)


def _design(gate: str):
    def design(arch, input_tensors, output_tensor, op_params):
        return _glu(gate, arch, input_tensors, output_tensor, op_params)

    design.__doc__ = f"The function `{gate}` of cores/activations.h of one half, times the other."
    return design


ggml_glu_op_reglu = _design("relu")
ggml_glu_op_geglu = _design("gelu")
ggml_glu_op_swiglu = _design("silu")
ggml_glu_op_geglu_erf = _design("gelu_erf")
ggml_glu_op_geglu_quick = _design("gelu_quick")


def ggml_glu_op_swiglu_oai(arch, input_tensors, output_tensor, op_params):
    """Parameter 2 is the factor in the sigmoid, parameter 3 the limit of both halves; one is added to the second."""
    slope, limit = bits(op_params, 2), bits(op_params, 3)
    return _glu("silu", arch, input_tensors, output_tensor, op_params, SLOPE=slope, LIMIT=limit)


def ggml_glu_op_swiglu_clamp(arch, input_tensors, output_tensor, op_params):
    """Parameter 3 is the limit of both halves."""
    return _glu("silu", arch, input_tensors, output_tensor, op_params, LIMIT=bits(op_params, 3))
