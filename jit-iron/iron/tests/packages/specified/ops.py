"""Designs that return specifications, alone or several."""

from functools import partial

from .kernel import Backend, Specification


def _described(arch, input_tensors, output_tensor, op_params):
    from .iron.described import described

    return described(arch, input_tensors, output_tensor, op_params)


def _specification(backend, arch, input_tensors, output_tensor, op_params, function=_described):
    return Specification(backend, arch, input_tensors, output_tensor, op_params, function)


def own_unbound(arch, input_tensors, output_tensor, op_params):
    """Older versions: the function is called with what the specification has."""
    return _specification(Backend.IRON, arch, input_tensors, output_tensor, op_params)


def own_bound(arch, input_tensors, output_tensor, op_params):
    """Newer versions: all arguments are bound."""
    function = partial(_described, arch, input_tensors, output_tensor, op_params)
    return _specification(Backend.IRON, arch, input_tensors, output_tensor, op_params, function)


def own_alternatives(*arguments):
    return [_specification(backend, *arguments) for backend in (Backend.OTHER, Backend.IRON)]


def own_of_another(*arguments):
    return [_specification(Backend.OTHER, *arguments)]
