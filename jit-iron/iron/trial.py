"""Compiles a small kernel for each generation, to see whether what was found can.

A toolchain may be complete and still compile nothing: programs of another machine's C library, a Peano that does not fit its aiecc, a
full disk. Only a kernel that was made shows the opposite.
"""

from __future__ import annotations

import tempfile

from commands import Failed, Unavailable
from compilation import Compiler
from design import Unsupported
from protocol import Request
from tensor_desc import TensorDesc

ARCHITECTURES = ("aie2", "aie2p")
# The design that every folder has which is laid out as the documents say, and a sum that each version of it does.
SOURCE = "binary_ops.py"
FUNCTION = "ggml_op_add"
_ELEMENTS = 1024


def run(compiler: Compiler) -> dict[str, str]:
    """Why the kernel of a generation could not be made, by generation; empty when all were."""
    failures = {}
    for arch in ARCHITECTURES:
        with tempfile.TemporaryDirectory(prefix="ggml-hsa-trial-") as folder:
            try:
                compiler.compile(_request(arch, folder))
            except (Failed, Unavailable, Unsupported) as reason:
                failures[arch] = str(reason)
    return failures


def _request(arch: str, work_dir: str) -> Request:
    row = 4 * _ELEMENTS
    tensor = TensorDesc.from_json({"dtype": "f32", "ne": [_ELEMENTS, 1, 1, 1], "nb": [4, row, row, row]})
    return Request(
        id=0,
        kernel="trial",
        arch=arch,
        op="ADD",
        op_params=bytes(64),
        inputs=(tensor, tensor),
        output=tensor,
        further_outputs=(),
        source=SOURCE,
        function=FUNCTION,
        work_dir=work_dir,
        verbose=False,
    )
