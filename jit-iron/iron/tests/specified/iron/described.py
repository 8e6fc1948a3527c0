"""A design two folders deep, which imports what lies above it."""

from ..specification import Backend


def described(arch, input_tensors, output_tensor, op_params):
    shapes = [tensor.shape for tensor in input_tensors]
    return f"// {Backend.IRON.name} {arch} {shapes} {output_tensor.shape} {len(op_params)}\n"
