"""Functions of one element: ggml's unary operations and those operations of its own that are no different."""

from __future__ import annotations

from design import Unsupported
from element_types import FLOATS, INTEGERS, cpp_type, require_contiguous, require_types
from elementwise import Core, elementwise
from generation import generation
from parameters import bits
from tensor_desc import TensorDesc

ON_INTEGERS = ("abs", "sgn", "neg", "step", "relu")
"""Functions that integers have too."""


def _unary(name: str, arch: str, input_tensors: list, output: TensorDesc, parameter: str | None = None) -> object:
    target = generation(arch)
    if len(input_tensors) != 1 or None in input_tensors:
        raise Unsupported(f"{name} has one source, not {input_tensors!r}")
    (source,) = input_tensors
    possible = FLOATS + INTEGERS if name in ON_INTEGERS else FLOATS
    for what, tensor in (("source 0", source), ("the result", output)):
        require_types(what, tensor, possible)
        require_contiguous(what, tensor)
    if source.shape != output.shape:
        raise Unsupported(f"source 0 has extents {source.shape}, the result {output.shape}; they must be equal")
    if source.dtype in INTEGERS or output.dtype in INTEGERS:
        if source.dtype != output.dtype:
            raise Unsupported(f"{source.dtype} to {output.dtype}: integers have results of their own type only")
        core = Core("unary_integer.cc", name, {"FUNCTION": name, "ELEMENT_TYPE": cpp_type(source.dtype)})
        return elementwise(target, core, [source], output)
    macros = {"FUNCTION": name, "INPUT_TYPE": cpp_type(source.dtype), "OUTPUT_TYPE": cpp_type(output.dtype)}
    if parameter is not None:
        macros["PARAMETER_0"] = parameter
    return elementwise(target, Core("unary.cc", name, macros), [source], output)


def ggml_op_leaky_relu(arch, input_tensors, output_tensor, op_params):
    """x, or where it is negative the first parameter times it."""
    return _unary("leaky_relu", arch, input_tensors, output_tensor, bits(op_params, 0))


def _design(name: str):
    def design(arch, input_tensors, output_tensor, op_params):
        return _unary(name, arch, input_tensors, output_tensor)

    design.__doc__ = f"The function `{name}` of cores/activations.h."
    return design


UNARY_FUNCTIONS = (
    "abs", "sgn", "neg", "step", "tanh", "elu", "relu", "sigmoid", "gelu", "gelu_quick", "silu", "hardswish",
    "hardsigmoid", "exp", "gelu_erf", "expm1", "floor", "ceil", "round", "trunc",
)  # fmt: skip
"""Functions that ggml counts as unary operations."""
OWN_OPERATIONS = ("sqr", "sqrt")
"""Functions that are operations of their own in ggml."""

for _name in UNARY_FUNCTIONS:
    globals()[f"ggml_unary_op_{_name}"] = _design(_name)
for _name in OWN_OPERATIONS:
    globals()[f"ggml_op_{_name}"] = _design(_name)
