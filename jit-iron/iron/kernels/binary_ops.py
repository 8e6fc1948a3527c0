"""ADD, SUB, MUL and DIV: the second source has the shape of the first or repeats to it."""

from __future__ import annotations

from design import Unsupported
from element_types import FLOATS, INTEGERS, cpp_type, require_contiguous, require_types
from elementwise import Core, elementwise, elementwise_repeated
from generation import generation
from tensor_desc import TensorDesc


def ggml_op_add(arch, input_tensors, output_tensor, op_params):
    """a + b."""
    return _binary("add", arch, input_tensors, output_tensor)


def ggml_op_sub(arch, input_tensors, output_tensor, op_params):
    """a - b."""
    return _binary("sub", arch, input_tensors, output_tensor)


def ggml_op_mul(arch, input_tensors, output_tensor, op_params):
    """a * b."""
    return _binary("mul", arch, input_tensors, output_tensor)


def ggml_op_div(arch, input_tensors, output_tensor, op_params):
    """a / b; of floats only."""
    return _binary("div", arch, input_tensors, output_tensor)


def _binary(name: str, arch: str, input_tensors: list, output: TensorDesc) -> object:
    target = generation(arch)
    if len(input_tensors) != 2 or None in input_tensors:
        raise Unsupported(f"{name} has two sources, not {input_tensors!r}")
    first, second = input_tensors
    possible = FLOATS if name == "div" else FLOATS + INTEGERS
    for what, tensor in (("source 0", first), ("source 1", second), ("the result", output)):
        require_types(what, tensor, possible)
        require_contiguous(what, tensor)
    if first.shape != output.shape:
        raise Unsupported(f"source 0 has extents {first.shape}, the result {output.shape}; they must be equal")
    if any(whole % part for whole, part in zip(first.shape, second.shape)):
        raise Unsupported(f"source 1 with extents {second.shape} does not repeat to {first.shape}; each extent must divide")
    core = _core(name, first, second, output)
    if first.shape == second.shape:
        return elementwise(target, core, [first, second], output)
    core.source = core.source.replace(".cc", "_repeated.cc")
    core.macros["EXTENTS"] = ",".join(map(str, [*first.shape, *second.shape]))
    return elementwise_repeated(target, core, [first, second], output)


def _core(name: str, first: TensorDesc, second: TensorDesc, output: TensorDesc) -> Core:
    types = [tensor.dtype for tensor in (first, second, output)]
    if types[0] in INTEGERS or types[1] in INTEGERS or types[2] in INTEGERS:
        if len(set(types)) > 1:
            raise Unsupported(f"types {', '.join(types)}: integers are computed with integers of the same type only")
        return Core("binary_integer.cc", name, {"FUNCTION": name, "ELEMENT_TYPE": cpp_type(types[0])})
    macros = {"FUNCTION": name, "OUTPUT_TYPE": cpp_type(types[2])}
    return Core("binary.cc", name, macros | {f"INPUT_{i}_TYPE": cpp_type(dtype) for i, dtype in enumerate(types[:2])})
