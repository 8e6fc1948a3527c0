"""How this folder's designs want tensors described."""

from types import SimpleNamespace


def ggml_tensor_to_tensordesc(dtype, shape, stride, contiguous):
    return SimpleNamespace(element=dtype.upper(), extents=tuple(shape), steps=tuple(stride), packed=contiguous)
