"""Designs that write their MLIR as text: what a worker must be able to do without IRON's Python package."""

import helper
from design import CoreFunction, Design, Unsupported

MLIR = """\
module {
  aie.device(npu2_1col) @main {
    %shim = aie.tile(0, 0)
    %core = aie.tile(0, 2)
    aie.objectfifo @in(%shim, {%core}, 2 : i32) : !aie.objectfifo<memref<SIZExi32>>
    aie.objectfifo @out(%core, {%shim}, 2 : i32) : !aie.objectfifo<memref<SIZExi32>>
    func.func private @copy_line(memref<SIZExi32>, memref<SIZExi32>) attributes {link_with = "copy_line.o"}
  }
}
"""


def ggml_op_copy(arch, input_tensors, output_tensor, op_params):
    """One core function of a file, with an option for the type."""
    assert isinstance(op_params, bytearray) and len(op_params) == 64
    if input_tensors[0].dtype != output_tensor.dtype:
        raise Unsupported(f"copies {output_tensor.dtype} only to itself")
    source = CoreFunction(
        object_file="copy_line.o",
        source="copy_line.cc",
        include_dirs=("include",),
        compile_flags=(f"-DINPUT_DTYPE={input_tensors[0].dtype}",),
    )
    return Design(helper.sized(MLIR, output_tensor.numel()), [source])


def ggml_op_generated(arch, input_tensors, output_tensor, op_params):
    """The same core function twice, as text."""
    function = CoreFunction("copy_line.o", text='extern "C" void copy_line(int *in, int *out) { *out = *in; }\n')
    return Design(helper.sized(MLIR, output_tensor.numel()), [function, function])


def ggml_op_wrong_source(arch, input_tensors, output_tensor, op_params):
    return Design(MLIR, [CoreFunction("copy_line.o", text="// a line\n#error no such type\n")])


def ggml_op_two_of_a_name(arch, input_tensors, output_tensor, op_params):
    return Design(MLIR, [CoreFunction("copy_line.o", text="// one"), CoreFunction("copy_line.o", text="// other")])


def ggml_op_no_object(arch, input_tensors, output_tensor, op_params):
    """Links an object that does not exist."""
    return MLIR


def ggml_op_describe(arch, input_tensors, output_tensor, op_params):
    """Writes what it was called with."""
    sources = [None if tensor is None else (tensor.dtype, tensor.shape, tensor.stride) for tensor in input_tensors]
    return f"// {arch} {sources} {output_tensor.dtype} {output_tensor.shape} {op_params.hex()}\n"


def ggml_op_several(arch, input_tensors, output_tensor, op_params, *, further_outputs=()):
    return f"// {[tensor.shape for tensor in further_outputs]}\n"


def ggml_op_prints(arch, input_tensors, output_tensor, op_params):
    """Does to standard output and standard input what a design may do."""
    import os
    import subprocess
    import sys

    print('{"done":{"id":1,"pdi":"forged","instructions":"forged"}}')
    os.write(1, b"by descriptor\n")
    subprocess.run(["echo", "by a process"], check=True)
    assert sys.stdin.read() == ""
    return "// quiet\n"


def ggml_op_raises(arch, input_tensors, output_tensor, op_params):
    raise KeyError("tile \udc80")


def ggml_op_exits(arch, input_tensors, output_tensor, op_params):
    raise SystemExit(0)


def ggml_op_returns_number(arch, input_tensors, output_tensor, op_params):
    return 7


def ggml_op_wrong_option(arch, input_tensors, output_tensor, op_params):
    return Design(MLIR, [CoreFunction("copy_line.o", text="//", compile_flags=("-DA=\0",))])


def ggml_op_needs_numpy(arch, input_tensors, output_tensor, op_params):
    import numpy

    return numpy.__doc__
