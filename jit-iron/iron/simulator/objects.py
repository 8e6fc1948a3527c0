"""What both APIs share: core functions, the state of a running core, functions whose body runs later."""

from __future__ import annotations

import types
from typing import Callable

from . import core_functions
from .array_program import CoreBuffer
from .core_functions import CoreSource, Libraries
from .errors import BadCall, SimulationError
from .hardware import Tile
from .memory import Region, View
from .scheduler import current

LIBRARIES = Libraries()
_objects: dict[str, CoreSource] = {}


def provide_object(name: str, source: CoreSource) -> None:
    """Says what object file `name`, which a design links, is compiled from."""
    _objects[name] = source


def forget_objects() -> None:
    """Forgets all of them."""
    _objects.clear()


def running(what: str):
    """The task that runs; raises when `what` is used while a design is being built."""
    task = current()
    if task is None:
        raise BadCall(f"{what} is used outside of a core's program and of the runtime sequence")
    return task


def machine():
    """The machine that executes the running code."""
    return running("the array").context["machine"]


def core_tile(what: str) -> Tile:
    """The core whose program runs."""
    core = running(what).context["core"]
    if core is None:
        raise BadCall(f"{what} is used in the runtime sequence; it belongs into a core's program")
    return core.tile


def call_core_function(name: str, source: CoreSource, types_: list, arguments: tuple) -> None:
    """Calls a C++ function from a core's program."""
    core_tile(f"core function {name}")
    core_functions.check(name, types_, arguments)
    library = LIBRARIES.get(source, machine().program.device.arch)
    core_functions.call(name, library, source.path or "the core functions' text", types_, arguments)


def object_source(object_file: str, name: str) -> CoreSource:
    """The source of an object file that a design links."""
    known = machine().program.objects
    if object_file not in known:
        raise SimulationError(
            f"core function {name} is linked from {object_file}, and its source is not known; "
            f"known object files: {', '.join(sorted(known)) or 'none'}"
        )
    return known[object_file]


def provided_objects() -> dict[str, CoreSource]:
    """What object files are compiled from, as far as known now."""
    return dict(_objects)


def as_it_is_now(function: Callable) -> Callable:
    """`function` with the variables of its surroundings as they are now.

    IRON runs a core's function when it builds the design; here it runs later, when a loop around it has gone on.
    """
    if not isinstance(function, types.FunctionType):
        return function
    cells = tuple(_copied(cell) for cell in function.__closure__ or ())
    copy = types.FunctionType(function.__code__, dict(function.__globals__), function.__name__, function.__defaults__, cells)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _copied(cell: types.CellType) -> types.CellType:
    try:
        return types.CellType(cell.cell_contents)
    except ValueError:  # Assigned later, so there is nothing to keep.
        return cell


class PlacedBuffer(View):
    """A core's buffer as designs name it; its memory exists while a machine runs."""

    def __init__(self, buffer: CoreBuffer) -> None:
        self.core_buffer = buffer
        self._type, self._offset = buffer.of_type, 0

    @property
    def _region(self) -> Region:
        return machine().buffer(self.core_buffer).region()

    def __str__(self) -> str:
        return f"buffer {self.core_buffer.name}"

    __repr__ = __str__


def never_ending(once: Callable[[], None]) -> None:
    """Runs `once` again and again, until a round of it waits for nothing; such a core does nothing more that others see."""
    task = running("a core's loop")
    while True:
        before = task.operations
        once()
        if task.operations == before:
            task.wait(lambda: False, "loops without waiting for anything")
