"""What a design may return, for designs that write their MLIR as text.

A design is a Python function in a file of the designs' folder:

    def ggml_op_add(arch, input_tensors, output_tensor, op_params):

`arch` is the generation's name (`aie2`, `aie2p`), `input_tensors` a list of TensorDesc, with None for a hole, `output_tensor` a
TensorDesc, `op_params` a bytearray of 64 bytes. A design for an operation with several results also takes the keyword
`further_outputs`, a list of TensorDesc.

It returns a `Design`, MLIR as a string, or an MLIR module of IRON. Core functions of a string or a module are those that it
created as `aie.iron.ExternalFunction`. A `Design` states its own and imports nothing of IRON: the textual form changes less
between IRON's versions than its Python API, and a test can read it without IRON.

A design that does not do a type, a shape or a generation raises `Unsupported`. Any other exception is a failure.
"""

from __future__ import annotations

from dataclasses import dataclass, field


class Unsupported(Exception):
    """The design does not do this kernel, and says why."""


@dataclass(frozen=True)
class CoreFunction:
    """A C++ file for the cores, compiled by Peano. Its functions are `extern "C"`.

    Exactly one of `source` and `text` is given. Raises ValueError otherwise, and when `object_file` is not a plain file name.
    """

    object_file: str
    """Name of the object file, to which `link_with` in the MLIR refers."""
    source: str = ""
    """The file, relative to the designs' folder."""
    text: str = ""
    """The C++ itself, for generated functions."""
    include_dirs: tuple[str, ...] = ()
    """Folders for `-I`, relative to the designs' folder."""
    compile_flags: tuple[str, ...] = ()
    """More options of the compiler, such as `-DINPUT_DTYPE=bf16`."""

    def __post_init__(self) -> None:
        if bool(self.source) == bool(self.text):
            raise ValueError(f"core function {self.object_file!r} needs either a source file or its text")
        if not is_plain_file_name(self.object_file):
            raise ValueError(f"object file {self.object_file!r} is not a plain file name")


@dataclass(frozen=True)
class Design:
    """MLIR for aiecc, and the core functions that it links."""

    mlir: str
    core_functions: list[CoreFunction] = field(default_factory=list)


def is_plain_file_name(name: str) -> bool:
    """Whether `name` stays in the folder it is joined to, and is not taken for an option."""
    return bool(name) and name not in (".", "..") and not name.startswith("-") and not set(name) & {"/", "\0"}


def is_plain_path(path: str) -> bool:
    """Whether `path` is a plain file name, in the folder it is joined to or in one below."""
    return all(is_plain_file_name(part) for part in path.split("/"))
