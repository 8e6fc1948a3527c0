"""Designs with IRON's Python package, of which the tests have a double."""

import numpy
from aie.iron import ExternalFunction, Module

TEXT = 'module {\n  // link_with = "first.o"\n  // link_with = "second.o"\n}\n'


def ggml_op_functions(arch, input_tensors, output_tensor, op_params):
    """Two core functions: one of text, one of a file."""
    ExternalFunction("second", source_file="copy_line.cc", include_dirs=["include"], compile_flags=["-DTWO"])
    ExternalFunction("first", source_string='extern "C" void first() {}\n')
    return Module(TEXT)


def ggml_op_plain(arch, input_tensors, output_tensor, op_params):
    """None: what an earlier design left must not be compiled."""
    return "module {}\n"


def ggml_op_forgets(arch, input_tensors, output_tensor, op_params):
    ExternalFunction("left", source_string="// left over\n")
    raise ValueError("after a core function")


def ggml_op_invalid(arch, input_tensors, output_tensor, op_params):
    return Module(TEXT, valid=False)
