"""What the simulator reports, each with the place in the design that it is about."""

from __future__ import annotations

import sys
from pathlib import Path

_OWN = str(Path(__file__).resolve().parent)
_LIBRARY = tuple(sorted({str(Path(module.__file__).resolve().parent) for module in (sys.modules["os"],)}))


class SimulationError(Exception):
    """A design does what the array cannot do, or what the simulator does not know."""

    def __init__(self, message: str, place: str | None = None) -> None:
        self.place = place or caller()
        super().__init__(f"{self.place}: {message}" if self.place else message)


class Deadlock(SimulationError):
    """Nothing can go on."""


class LimitExceeded(SimulationError):
    """More of something than the array has."""


class UseAfterRelease(SimulationError):
    """An element of a fifo is used by who no longer holds it."""


class BadCall(SimulationError):
    """A core function, or a function of the API, is given what it does not take."""


class BadType(BadCall, ValueError):
    """A name of an element type that IRON does not have; as ValueError, which is what IRON raises."""


class BadTransfer(SimulationError):
    """A transfer that no DMA does."""


class Unknown(SimulationError):
    """Part of the API that is not simulated."""


class UnknownName(Unknown, ImportError):
    """A name of a module that is not simulated; as ImportError, so that a design may look for another."""


def caller() -> str:
    """`file:line` of the innermost frame that is neither the simulator's nor of Python's library; empty if there is none."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith("<") and not name.startswith(_OWN) and not name.startswith(_LIBRARY):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def place_of(error: BaseException) -> str:
    """`file:line` of the design where `error` was raised; empty if it was not in one."""
    place, trace = "", error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if not name.startswith("<") and not name.startswith(_OWN) and not name.startswith(_LIBRARY):
            place = f"{name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
