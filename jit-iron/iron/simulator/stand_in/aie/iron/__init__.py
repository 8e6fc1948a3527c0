"""Stands for `aie.iron`, in the form of the release that was chosen."""

from simulator.installation import release, unknown_name
from simulator.iron_objects import Buffer, ExternalFunction, Kernel, Worker, WorkerRuntimeBarrier
from simulator.iron_program import Program
from simulator.number_types import dtype_to_str, str_to_dtype

if release() == "1.3":
    from simulator.iron_objects import ObjectFifo
    from simulator.iron_program import RecordedRuntime as Runtime
else:
    from simulator.iron_program import FunctionRuntime as Runtime
    from simulator.iron_program import PlacedFifo as ObjectFifo
    from simulator.iron_program import TaskGroup
    from simulator.iron_program import TiledWorker as Worker

__getattr__ = unknown_name(__name__, [name for name in dir() if name not in ("release", "unknown_name")])
