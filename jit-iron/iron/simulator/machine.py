"""Executes an array program."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from . import hardware
from .array_program import ArrayProgram, Core, CoreBuffer, End, Fifo, Link, array_bytes, array_dtype
from .budgets import check_budgets
from .errors import BadCall, BadTransfer, Deadlock, LimitExceeded, SimulationError, Unknown, caller
from .fifo_state import CorePort, Pool
from .hardware import Tile
from .layout import check_tile
from .memory import Region, View
from .scheduler import Task, current
from .shim import HostTensor, ShimChannel, Transfer
from .streams import PoolSink, PoolSource, Stream

_ROUNDING = hardware.WORD - 1
"""Bytes by which a design's argument may exceed a tensor, because transfers are whole words."""
_UNKNOWN_BYTE = 0xCD
"""What lies behind such a tensor."""


@dataclass
class Report:
    """What an execution did."""

    transfers: list[dict]
    core_calls: int
    cores: int
    columns: int
    notes: list[str]


class Machine:
    """One execution of a program: memory, channels, tasks."""

    def __init__(self, program: ArrayProgram) -> None:
        check_budgets(program)
        self.program = program
        self.core_calls = 0
        self.transfers: list[Transfer] = []
        self.notes: list[str] = []
        self._pools: dict[tuple[int, Tile | None], Pool] = {}
        self._ports: dict[tuple[int, Tile, bool, int], CorePort] = {}
        self._regions: dict[int, Region] = {}
        self._locks: dict[object, int] = {}
        self._streams: list[Stream] = []
        self._shims: dict[tuple[int, bool], ShimChannel] = {}
        self._descriptors: dict[Tile, dict[int, Transfer]] = {}
        self._channels: dict[tuple[Tile, bool], int] = {}
        self._link_party: dict[tuple[int, bool, Tile], tuple[Pool, int, int, int | None]] = {}
        for link in program.links:
            self._add_link(link)
        for fifo in program.fifos:
            self._add_fifo(fifo)
        for buffer in program.buffers:
            self._add_buffer(buffer)

    # What the design's code uses while it runs.

    def port(self, fifo: Fifo, tile: Tile, produces: bool, consumer: int) -> CorePort:
        """A core's side of a fifo."""
        key = (id(fifo), tile, produces, consumer)
        if key not in self._ports:
            end = fifo.producer if produces else fifo.consumers[consumer]
            if end.tile != tile:
                side = "producer" if produces else "consumer"
                raise BadCall(f"the core of {tile} uses fifo {fifo.name} as its {side}, which is at {end.tile}")
            pool = self._pools[(id(fifo), None if produces or fifo.shared else end.tile)]
            self._ports[key] = CorePort(fifo, pool, produces, end.depth)
        return self._ports[key]

    def buffer(self, buffer: CoreBuffer) -> View:
        """A core's buffer."""
        return View(self._regions[id(buffer)], buffer.of_type)

    def start(self, transfer: Transfer, descriptor: int | None = None) -> None:
        """Puts a transfer into its channel's queue, as the runtime sequence does."""
        channel = self.channel(transfer.fifo, transfer.to_host)
        task = current()
        if channel.full:
            task.context["queue"] = channel
            task.wait(lambda: not channel.full, f"{transfer} waits for room in the queue of {channel.tile}", transfer.place)
            task.context["queue"] = None
        self._take_descriptor(channel.tile, transfer, descriptor)
        channel.start(transfer)
        self.transfers.append(transfer)

    def channel(self, fifo: Fifo, to_host: bool) -> ShimChannel:
        """The shim's channel at the end of `fifo`."""
        channel = self._shims.get((id(fifo), to_host))
        if channel is None:
            way = "consumer" if to_host else "producer"
            raise BadTransfer(f"fifo {fifo.name} has no {way} at a shim, so that nothing of it is {'drained' if to_host else 'filled'}")
        return channel

    def wait(self, transfer: Transfer) -> None:
        """Until a transfer has sent its token."""
        if not transfer.token:
            raise BadCall(f"{transfer} ({transfer.place}) is waited for and sends no token; start it with one")
        current().wait(lambda: transfer.done, f"the sequence waits for {transfer}, started at {transfer.place}", transfer.place)
        tokens = self.channel(transfer.fifo, transfer.to_host).tokens
        if transfer in tokens:
            tokens.remove(transfer)
        self.free(transfer)

    def wait_token(self, fifo: Fifo) -> None:
        """Until the next token of the channel at the end of `fifo` has come."""
        channel = self._shims.get((id(fifo), True)) or self.channel(fifo, False)
        if not channel.tokens:
            raise BadCall(f"the sequence waits for a token of fifo {fifo.name}, and no task that is not waited for sends one")
        self.wait(channel.tokens[0])

    def free(self, transfer: Transfer) -> None:
        """Makes the transfer's descriptor usable again."""
        transfer.freed = True

    def lock(self, key: object, initial: int = 0) -> int:
        """The value of a lock between the sequence and a core."""
        return self._locks.setdefault(key, initial)

    def set_lock(self, key: object, value: int) -> None:
        """Sets that value."""
        self._locks[key] = value

    # Execution.

    def run(self, arguments: list[np.ndarray]) -> Report:
        """Executes the runtime sequence on `arguments`, flat arrays that are read and written."""
        tensors = [HostTensor(i, t, data) for i, (t, data) in enumerate(zip(self.program.argument_types, arguments))]
        tasks = [
            Task(str(core.tile), core.body, machine=self, core=core, kind="core") for core in sorted(self.program.cores, key=_position)
        ]
        sequence = Task("runtime sequence", lambda: self.program.sequence(*tensors), machine=self, core=None, kind="sequence")
        try:
            self._loop([*tasks, sequence], sequence)
        finally:
            for task in (*tasks, sequence):
                task.stop()
        self._check_end()
        columns = {core.tile.col for core in self.program.cores} | {channel.tile.col for channel in self._shims.values()}
        return Report([t.record() for t in self.transfers], self.core_calls, len(self.program.cores), len(columns), self.notes)

    def _loop(self, tasks: list[Task], sequence: Task) -> None:
        while True:
            moved = False
            for task in tasks:
                if task.ready():
                    task.run()
                    moved = True
            for stream in self._streams:
                moved |= stream.pump()
            if moved:
                continue
            if sequence.finished:
                return
            if sequence.context.get("queue") is not None:
                raise LimitExceeded(
                    f"{sequence.reason}: {hardware.QUEUE} tasks wait there and none can end; the hardware would lose this one",
                    sequence.place,
                )
            raise Deadlock(self._deadlock(tasks), sequence.place)

    def _deadlock(self, tasks: list[Task]) -> str:
        waiting = [f"  {task.name}: {task.reason} ({task.place})" for task in tasks if not task.finished and task.reason]
        ended = [f"  {task.name}: has ended" for task in tasks if task.finished]
        streams = [f"  {stream.state()}" for stream in self._streams]
        return "\n".join(["deadlock: nothing can go on", *_first(waiting[::-1]), *_first(ended), *_first(streams)])

    def _check_end(self) -> None:
        for transfer in self.transfers:
            if not transfer.done:
                raise SimulationError(
                    f"the sequence ends, and {transfer} has moved {transfer.at} of {transfer.bytes} bytes and never goes on",
                    transfer.place,
                )
        for channel in self._shims.values():
            if not channel.to_host or channel.last is None:
                continue
            last = channel.last
            if not last.token or last in channel.tokens:
                raise SimulationError(
                    f"nobody waits for {last}: the kernel ends before its bytes have arrived; start it with a token and wait", last.place
                )
        for stream in self._streams:
            left = stream.source.available() if isinstance(stream.source, PoolSource) else 0
            if left:
                self.notes.append(f"{stream.name}: {left} bytes are left at the end and are the first of the next dispatch")

    # Construction.

    def _add_link(self, link: Link) -> None:
        sources, targets = link.sources, link.targets
        if len(sources) > 1 and len(targets) > 1:
            raise BadCall("a link has several sources and several targets; one of them is a single fifo", link.place)
        tile = targets[0].producer.tile
        what = f"fifos {', '.join(f.name for f in (*sources, *targets))} in {tile}"
        ends = [self._end_at(fifo, tile, link) for fifo in sources]
        if len(sources) > 1:
            whole, depth = targets[0].bytes, targets[0].producer.depth
        else:
            whole, depth = sources[0].bytes, ends[0].depth
            if len(targets) == 1:
                whole = max(whole, targets[0].bytes)
        pool = Pool(what, whole, depth, fillers=len(sources), drainers=len(targets))
        for party, (fifo, end) in enumerate(zip(sources, ends)):
            offset = self._part(link, link.source_offsets, party, len(sources), fifo, whole)
            size = fifo.bytes if len(sources) > 1 else None
            self._link_party[(id(fifo), False, id(end))] = (pool, party, offset, size)
        for party, fifo in enumerate(targets):
            offset = self._part(link, link.target_offsets, party, len(targets), fifo, whole)
            size = fifo.bytes if len(targets) > 1 else None
            self._link_party[(id(fifo), True, id(fifo.producer))] = (pool, party, offset, size)

    @staticmethod
    def _end_at(fifo: Fifo, tile: Tile, link: Link) -> End:
        for end in fifo.consumers:
            if (end.owner is link.owner) if end.owner is not None else (end.tile == tile):
                return end
        raise BadCall(f"fifo {fifo.name} is linked at {tile} and has no consumer there", link.place)

    @staticmethod
    def _part(link: Link, offsets: list[int], party: int, parties: int, fifo: Fifo, whole: int) -> int:
        if parties == 1:
            return 0
        if len(offsets) != parties:
            raise BadCall(f"a link of {parties} fifos has {len(offsets)} offsets", link.place)
        offset = offsets[party] * array_dtype(fifo.of_type).itemsize
        if offset + fifo.bytes > whole:
            raise BadCall(f"fifo {fifo.name} is linked at byte {offset} with {fifo.bytes} bytes; the whole has {whole}", link.place)
        return offset

    def _add_fifo(self, fifo: Fifo) -> None:
        if fifo.iterations is not None:
            raise Unknown(f"fifo {fifo.name} has an iteration count, which is not simulated", fifo.place)
        if not fifo.consumers:
            raise BadCall(f"fifo {fifo.name} has no consumer", fifo.place)
        itemsize = array_dtype(fifo.of_type).itemsize
        if fifo.bytes % hardware.WORD and not fifo.shared:
            raise BadTransfer(
                f"an element of fifo {fifo.name} has {fifo.bytes} bytes; a DMA moves multiples of {hardware.WORD}", fifo.place
            )
        if fifo.shared:
            pool = Pool(f"fifo {fifo.name}", fifo.bytes, fifo.producer.depth)
            self._pools[(id(fifo), None)] = pool
            self._fill_initial(fifo, pool)
            return
        source = self._source(fifo, itemsize)
        sinks = [self._sink(fifo, end, itemsize) for end in fifo.consumers]
        where = ", ".join(str(end.tile) for end in fifo.consumers)
        self._streams.append(Stream(f"fifo {fifo.name} from {fifo.producer.tile} to {where}", source, sinks))

    def _source(self, fifo: Fifo, itemsize: int) -> object:
        end = fifo.producer
        number = self._channel(end.tile, False, fifo)
        if end.tile.row == hardware.SHIM_ROW:
            self._shims[(id(fifo), False)] = channel = ShimChannel(fifo, end.tile, number, False)
            return channel
        check_tile(f"fifo {fifo.name} to the stream", end.dims, itemsize, hardware.limits(end.tile.row), fifo.place)
        linked = self._link_party.get((id(fifo), True, id(end)))
        if linked is not None:
            pool, party, offset, size = linked
            return PoolSource(pool, party, itemsize, end.dims, offset, size, fifo.repeat, fifo.padding)
        pool = Pool(f"fifo {fifo.name} in {end.tile}", fifo.bytes, end.depth)
        self._pools[(id(fifo), None)] = pool
        self._fill_initial(fifo, pool)
        return PoolSource(pool, 0, itemsize, end.dims, repeat=fifo.repeat, padding=fifo.padding)

    def _sink(self, fifo: Fifo, end: End, itemsize: int) -> object:
        number = self._channel(end.tile, True, fifo)
        if end.tile.row == hardware.SHIM_ROW:
            self._shims[(id(fifo), True)] = channel = ShimChannel(fifo, end.tile, number, True)
            return channel
        check_tile(f"fifo {fifo.name} from the stream", end.dims, itemsize, hardware.limits(end.tile.row), fifo.place)
        linked = self._link_party.get((id(fifo), False, id(end)))
        if linked is not None:
            pool, party, offset, size = linked
            return PoolSink(pool, party, itemsize, end.dims, offset, size)
        pool = Pool(f"fifo {fifo.name} in {end.tile}", fifo.bytes, end.depth)
        self._pools[(id(fifo), end.tile)] = pool
        return PoolSink(pool, 0, itemsize, end.dims)

    @staticmethod
    def _fill_initial(fifo: Fifo, pool: Pool) -> None:
        for values in fifo.initial or []:
            slot = pool.to_fill(0)
            slot.region.typed(fifo.of_type)[...] = np.asarray(values, dtype=array_dtype(fifo.of_type)).reshape(
                slot.region.typed(fifo.of_type).shape
            )
            pool.filled[0] += 1

    def _channel(self, tile: Tile, inwards: bool, fifo: Fifo) -> int:
        number = self._channels.get((tile, inwards), 0)
        self._channels[(tile, inwards)] = number + 1
        return number

    def _add_buffer(self, buffer: CoreBuffer) -> None:
        region = Region(f"buffer {buffer.name}", array_bytes(buffer.of_type))
        if buffer.initial is not None:
            array = region.typed(buffer.of_type)
            array[...] = np.asarray(buffer.initial).reshape(array.shape).astype(array.dtype)
        self._regions[id(buffer)] = region

    def _take_descriptor(self, tile: Tile, transfer: Transfer, wanted: int | None) -> None:
        used = self._descriptors.setdefault(tile, {})
        most = hardware.SHIM.descriptors
        if wanted is not None:
            if not 0 <= wanted < most:
                raise LimitExceeded(f"{transfer} uses descriptor {wanted}; {tile} has {most}")
            before = used.get(wanted)
            if before is not None and not before.done:
                raise BadTransfer(
                    f"{transfer} overwrites descriptor {wanted} of {tile}, which {before} ({before.place}) still uses", transfer.place
                )
            transfer.descriptor = wanted
        else:
            free = [n for n in range(most) if n not in used or used[n].freed]
            if not free:
                raise LimitExceeded(f"{transfer} needs a descriptor of {tile}, and all {most} are in use; wait for or free earlier ones")
            transfer.descriptor = free[0]
            before = used.get(free[0])
            if before is not None and not before.done:
                raise BadTransfer(
                    f"{transfer} reuses the descriptor of {before} ({before.place}), which was freed and has not ended", transfer.place
                )
        used[transfer.descriptor] = transfer


class SimulatedModule:
    """What `resolve_program` of the stand-in returns in place of an MLIR module."""

    latest: SimulatedModule | None = None
    """The one that was made last, for designs that only print theirs."""

    def __init__(self, program: ArrayProgram) -> None:
        self.program = program
        self.report: Report | None = None
        SimulatedModule.latest = self

    @property
    def operation(self) -> SimulatedModule:
        """IRON's modules have one with `verify`."""
        return self

    def verify(self) -> bool:
        """Checks what is known before execution."""
        check_budgets(self.program)
        return True

    def __str__(self) -> str:
        program = self.program
        return (
            f"// simulated: {len(program.cores)} cores, {len(program.fifos)} fifos, {len(program.argument_types)} arguments "
            f"on {program.device.name}\n"
        )

    def execute(self, arguments: list) -> list[np.ndarray]:
        """Runs the kernel on `arguments`, byte strings or arrays in the order of the runtime sequence.

        Returns what is in each afterwards, as flat arrays of its declared element type; arrays that can be written are also updated.
        """
        types = self.program.argument_types
        if len(arguments) != len(types):
            raise BadCall(f"the kernel has {len(types)} arguments and is given {len(arguments)}", self.program.place)
        flat = [_argument(index, of_type, given) for index, (of_type, given) in enumerate(zip(types, arguments))]
        self.report = Machine(self.program).run(flat)
        for array, given in zip(flat, arguments):
            if isinstance(given, (bytearray, memoryview)) and not memoryview(given).readonly:
                memoryview(given).cast("B")[:] = array.view(np.uint8)[: memoryview(given).nbytes].tobytes()
            elif isinstance(given, np.ndarray) and given.flags.writeable and given.flags.c_contiguous:
                given.reshape(-1).view(np.uint8)[:] = array.view(np.uint8)[: given.nbytes]
        return flat


def _argument(index: int, of_type: object, given: object) -> np.ndarray:
    data = np.ascontiguousarray(given).reshape(-1).view(np.uint8) if isinstance(given, np.ndarray) else np.frombuffer(given, np.uint8)
    wanted, dtype = array_bytes(of_type), array_dtype(of_type)
    # A declared type is only a hint: nothing of a compiled kernel depends on its extents.
    if wanted - len(data) > _ROUNDING:
        raise BadCall(f"argument {index} has {len(data)} bytes; the design declares {wanted}", caller() or "execute")
    whole = np.full(-(-max(wanted, len(data)) // dtype.itemsize) * dtype.itemsize, _UNKNOWN_BYTE, dtype=np.uint8)
    whole[: len(data)] = data
    return whole.view(dtype)


def _first(lines: list[str], most: int = 12) -> list[str]:
    return lines[:most] + ([f"  and {len(lines) - most} more"] if len(lines) > most else [])


def _position(core: Core) -> tuple[int, int]:
    return core.tile.col, core.tile.row
