"""What the designs need to know of a generation of the array."""

from __future__ import annotations

from dataclasses import dataclass

from design import Unsupported

VECTOR_BYTES = 64
"""A vector register, and the alignment of every buffer that a core reads as vectors."""
WORD_BYTES = 4
"""What a DMA counts in: addresses, lengths and steps are whole words."""
DATA_MEMORY = 64 * 1024
"""Bytes of a core's data memory."""
STACK = 1024
"""Bytes of a core's stack where a design does not say otherwise. Buffers follow it, so it is a multiple of VECTOR_BYTES."""
STATIC_DATA = 2048
"""Bytes left to the constants of the core functions."""


@dataclass(frozen=True)
class Generation:
    """A generation by the name that requests have for it."""

    name: str
    columns: int
    device: str
    """IRON's class for all columns; with `Col` and a number for fewer."""

    def device_name(self, columns: int) -> str:
        """IRON's class of a device with this many columns."""
        return self.device if columns == self.columns else f"{self.device}Col{columns}"


_GENERATIONS = {g.name: g for g in (Generation("aie2", 4, "NPU1"), Generation("aie2p", 8, "NPU2"))}


def generation(arch: str) -> Generation:
    """The generation named `arch`; raises Unsupported when there is none."""
    if arch not in _GENERATIONS:
        raise Unsupported(f"no design for {arch!r}; there are designs for {', '.join(_GENERATIONS)}")
    return _GENERATIONS[arch]


def require_memory(what: str, buffers: dict[str, int], stack: int = STACK) -> None:
    """Raises Unsupported, with the sum written out, when a core's buffers (bytes by name) exceed its data memory."""
    total = sum(buffers.values()) + stack + STATIC_DATA
    if total > DATA_MEMORY:
        parts = " + ".join(f"{name} {size}" for name, size in buffers.items())
        raise Unsupported(
            f"{what} needs {total} bytes of a core's {DATA_MEMORY}: {parts} + stack {stack} + constants {STATIC_DATA}"
        )
