"""A design two folders deep, which imports what lies above it."""

from ..kernel import Backend


def described(arch, input_tensors, output_tensor, op_params):
    tensors = [(tensor.element, tensor.extents, tensor.packed) for tensor in (*input_tensors, output_tensor)]
    return f"// {Backend.IRON.name} {arch} {tensors} {len(op_params)}\n"
