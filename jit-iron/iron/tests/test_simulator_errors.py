"""What the simulator refuses, and that it says where."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

try:
    import numpy as np
    from simulator import errors, installation, objects
except ModuleNotFoundError as missing:  # The simulator needs numpy and ml_dtypes, as IRON does.
    raise unittest.SkipTest(f"{missing}; install numpy and ml_dtypes") from None

SIMULATE = Path(__file__).resolve().parents[1] / "simulate.py"
I32 = np.dtype[np.int32]
BESIDE = """
#include <cstdint>
extern "C" void write_beside(int32_t *out) { out[16] = 1; }
extern "C" void nothing(int32_t *out, int32_t) { out[0] = 0; }
"""


def line(count: int, of: type = np.int32) -> type:
    """A flat array."""
    return np.ndarray[(count,), np.dtype[of]]


class Refused(unittest.TestCase):
    """Every error has a kind, says what is wrong, and names a line of this file."""

    def setUp(self) -> None:
        installation.install("1.3")
        objects.forget_objects()
        self.iron = importlib.import_module("aie.iron")
        self.devices = importlib.import_module("aie.iron.device")
        self.taps = importlib.import_module("aie.helpers.taplib")
        self.controlflow = importlib.import_module("aie.iron.controlflow")

    def refuse(self, kind: type, words: str, design, total: int = 64) -> None:
        """`design` builds and returns a program's module; somewhere on the way it is refused."""
        with self.assertRaises(kind) as caught:
            module = design()
            module.execute([np.zeros(total, np.int32) for _ in module.program.argument_types])
        self.assertIn(words, str(caught.exception))
        self.assertRegex(str(caught.exception), rf"^{__file__}:\d+: ")
        self.assertEqual(caught.exception.place, str(caught.exception).split(": ")[0])

    def core(self, body, depth: int = 2, fill: int = 32, drain: int = 32, size: int = 16, **options):
        """A design with one core between two fifos."""

        def design():
            fifo_in = self.iron.ObjectFifo(line(size), depth=depth, name="in")
            fifo_out = self.iron.ObjectFifo(line(size), depth=depth, name="out")
            runtime = self.iron.Runtime()
            with runtime.sequence(line(64), line(64)) as (a, c):
                extra = options.pop("arguments", [])
                runtime.start(self.iron.Worker(body, [fifo_in.cons(), fifo_out.prod(), *extra], **options))
                runtime.fill(fifo_in.prod(), a, self.linear(fill))
                runtime.drain(fifo_out.cons(), c, self.linear(drain), wait=True)
            return self.resolve(runtime)

        return design

    def moved(self, *moves, wait: bool = True):
        """A design that passes data through a mem tile; each move is a tap."""

        def design():
            fifo = self.iron.ObjectFifo(line(16), name="in")
            out = fifo.cons().forward(name="out").cons()
            runtime = self.iron.Runtime()
            with runtime.sequence(line(64), line(64)) as (a, c):
                for tap in moves:
                    runtime.fill(fifo.prod(), a, tap)
                runtime.drain(out, c, self.linear(64), wait=wait)
            return self.resolve(runtime)

        return design

    def resolve(self, runtime, device: str = "NPU1"):
        return self.iron.Program(getattr(self.devices, device)(), runtime).resolve_program()

    def linear(self, count: int):
        return self.tap(0, [1, 1, 1, count], [0, 0, 0, 1])

    def tap(self, offset: int, sizes: list, strides: list):
        return self.taps.TensorAccessPattern((1 << 22,), offset, sizes, strides)

    @staticmethod
    def copy(of_in, of_out) -> None:
        source, target = of_in.acquire(1), of_out.acquire(1)
        target[0] = source[0]
        of_in.release(1)
        of_out.release(1)

    def test_deadlocks_say_who_waits_for_what(self) -> None:
        def forgets(of_in, of_out) -> None:
            of_in.acquire(1)
            of_out.acquire(1)
            of_out.release(1)

        # It keeps its first element, so that acquiring one gives the same again, and the second tile is never taken.
        self.refuse(errors.SimulationError, "has moved", self.core(forgets, fill=64, drain=32))
        self.refuse(errors.Deadlock, "the sequence waits for the drain of fifo out", self.core(self.copy, fill=16, drain=32))
        waits = "core (0,2): the consumer of fifo in waits for 1 full element"
        self.refuse(errors.Deadlock, waits, self.core(self.copy, fill=16, drain=32))

    def test_elements_are_not_used_after_release(self) -> None:
        def late(of_in, of_out) -> None:
            source = of_in.acquire(1)
            of_in.release(1)
            target = of_out.acquire(1)
            target[0] = source[0]
            of_out.release(1)

        def late_call(of_in, of_out, function) -> None:
            of_in.acquire(1)
            target = of_out.acquire(1)
            of_out.release(1)
            function(target)

        self.refuse(errors.UseAfterRelease, "was released at", self.core(late))
        function = self.iron.ExternalFunction("write_beside", source_string=BESIDE, arg_types=[line(16)])
        self.refuse(errors.UseAfterRelease, "was released at", self.core(late_call, arguments=[function]))

    def test_acquire_and_release_keep_to_the_depth(self) -> None:
        self.refuse(errors.LimitExceeded, "acquires 3 elements; its depth is 2", self.core(lambda i, o: i.acquire(3)))
        self.refuse(errors.BadCall, "releases 1 elements and holds 0", self.core(lambda i, o: i.release(1)))
        self.refuse(errors.BadCall, "at least 1, not 0", self.core(lambda i, o: i.acquire(0)))

    def test_memories_and_channels(self) -> None:
        self.refuse(errors.LimitExceeded, "65536 bytes of memory, and 66560 are needed: stack 1024", self.core(self.copy, size=4096))
        self.refuse(errors.LimitExceeded, "and 69632 are needed: stack 4096", self.core(self.copy, size=4096, stack_size=4096))

        def mem_tile():
            fifo = self.iron.ObjectFifo(line(1 << 16), depth=3, name="in")
            out = fifo.cons().forward(name="out").cons()
            runtime = self.iron.Runtime()
            with runtime.sequence(line(64), line(64)) as (a, c):
                runtime.fill(fifo.prod(), a)
                runtime.drain(out, c, wait=True)
            return self.resolve(runtime)

        self.refuse(errors.LimitExceeded, "mem tile (0,1) has 524288 bytes of memory, and 786432 are needed", mem_tile)

        def three_inputs():
            fifos = [self.iron.ObjectFifo(line(16), name=f"in{i}") for i in range(3)]
            out = self.iron.ObjectFifo(line(16), name="out")
            runtime = self.iron.Runtime()
            with runtime.sequence(line(64), line(64)) as (a, c):
                runtime.start(self.iron.Worker(lambda *_: None, [*[f.cons() for f in fifos], out.prod()]))
                for fifo in fifos:
                    runtime.fill(fifo.prod(), a)
                runtime.drain(out.cons(), c, wait=True)
            return self.resolve(runtime)

        self.refuse(errors.LimitExceeded, "core (0,2) has 2 DMA channels into it, and 3 fifos need one: in0, in1, in2", three_inputs)

        def shims():
            runtime = self.iron.Runtime()
            with runtime.sequence(line(64), line(64)) as (a, c):
                for i in range(3):
                    fifo = self.iron.ObjectFifo(line(16), name=f"in{i}")
                    runtime.fill(fifo.prod(), a)
                    runtime.drain(fifo.cons().forward().cons(), c, wait=True)
            return self.resolve(runtime, "NPU1Col1")

        self.refuse(errors.LimitExceeded, "no shim of npu1_1col has the DMA channels", shims)

    def test_columns_and_cores(self) -> None:
        self.refuse(
            errors.LimitExceeded, "tile (4,2) is outside of npu1, which has 4 columns", self.core(self.copy, tile=self.devices.Tile(4, 2))
        )
        self.refuse(errors.LimitExceeded, "(0,1) is not a core", self.core(self.copy, tile=self.devices.Tile(0, 1)))

        def too_many():
            runtime = self.iron.Runtime()
            with runtime.sequence(line(64)):
                runtime.start(*[self.iron.Worker(lambda: None, []) for _ in range(5)])
            return self.resolve(runtime, "NPU2Col1")

        self.refuse(errors.LimitExceeded, "no core of npu2_1col is left", too_many)

    def test_descriptors_of_a_core(self) -> None:
        self.refuse(errors.LimitExceeded, "core (0,2) has 16 DMA descriptors, and 18 are needed: in 9 + out 9", self.core(self.copy, depth=9))

    def test_queues_and_descriptors(self) -> None:
        def queue():
            fifo = self.iron.ObjectFifo(line(16), name="in")
            out = fifo.cons().forward(name="out").cons()
            runtime = self.iron.Runtime()
            with runtime.sequence(line(64), line(64)) as (a, c):
                for _ in range(10):
                    runtime.fill(fifo.prod(), a, self.linear(16))
                runtime.drain(out, c, self.linear(64), wait=True)
            return self.resolve(runtime)

        self.refuse(errors.LimitExceeded, "4 tasks wait there and none can end; the hardware would lose this one", queue)

        def descriptors():
            fifo = self.iron.ObjectFifo(line(16), name="in")
            out = fifo.cons().forward(name="out").cons()
            runtime = self.iron.Runtime()
            with runtime.sequence(line(64), line(1024)) as (a, c):
                runtime.drain(out, c, self.tap(0, [1, 1, 1, 1024], [0, 0, 0, 1]), wait=True)
                for _ in range(16):
                    runtime.fill(fifo.prod(), a, self.linear(64))
            return self.resolve(runtime)

        with self.assertRaisesRegex(errors.LimitExceeded, "needs a descriptor of shim .*, and all 16 are in use"):
            descriptors().execute([np.zeros(64, np.int32), np.zeros(1024, np.int32)])

    def test_transfers_that_no_dma_does(self) -> None:
        for words, offset, sizes, strides in (
            ("iterates 65 times; a shim's descriptor does 64", 0, [65, 1, 1, 1], [1, 0, 0, 1]),
            ("1024 words or steps in dimension 2 of [1, 1, 1024]", 0, [2, 1, 1, 1024], [0, 0, 0, 1]),
            ("a step of 0; it must be positive", 0, [1, 2, 1, 16], [0, 0, 0, 1]),
            ("steps 1048576 words", 0, [1, 1, 2, 4], [0, 0, (1 << 20) + 1, 1]),
            ("reaches element 79; argument 0 has 64 elements", 16, [1, 1, 1, 64], [0, 0, 0, 1]),
        ):
            with self.subTest(words):
                self.refuse(errors.BadTransfer, words, self.moved(self.tap(offset, sizes, strides)))

        def bytes_(offset: int, sizes: list, strides: list):
            def design():
                fifo = self.iron.ObjectFifo(line(64, np.int8), name="in")
                runtime = self.iron.Runtime()
                with runtime.sequence(line(64, np.int8), line(64, np.int8)) as (a, c):
                    runtime.fill(fifo.prod(), a, self.tap(offset, sizes, strides))
                    runtime.drain(fifo.cons().forward().cons(), c, self.linear(64), wait=True)
                return self.resolve(runtime)

            return design

        self.refuse(errors.BadTransfer, "moves 62 bytes, not a multiple of 4", bytes_(0, [1, 1, 1, 62], [0, 0, 0, 1]))
        self.refuse(errors.BadTransfer, "begins at byte 2, not a multiple of 4", bytes_(2, [1, 1, 1, 32], [0, 0, 0, 1]))
        self.refuse(errors.BadTransfer, "steps are multiples of 4 bytes", bytes_(0, [1, 1, 4, 4], [0, 0, 6, 1]))

    def test_transformations_of_a_core_are_limited(self) -> None:
        def design():
            fifo = self.iron.ObjectFifo(line(16), name="in")
            out = self.iron.ObjectFifo(line(16), name="out", dims_to_stream=[(2, 8), (2, 4), (2, 2), (2, 1)])
            runtime = self.iron.Runtime()
            with runtime.sequence(line(64), line(64)) as (a, c):
                runtime.start(self.iron.Worker(self.copy, [fifo.cons(), out.prod()]))
                runtime.fill(fifo.prod(), a)
                runtime.drain(out.cons(), c, wait=True)
            return self.resolve(runtime)

        self.refuse(errors.BadTransfer, "has 4 dimensions; a descriptor of a core has 3", design)

    def test_the_end_of_the_sequence(self) -> None:
        self.refuse(errors.SimulationError, "nobody waits for the drain of fifo out", self.moved(self.linear(64), wait=False))
        surplus = self.tap(0, [8, 1, 1, 16], [0, 0, 0, 1])
        self.refuse(errors.SimulationError, "the fill of fifo in has moved", self.moved(self.linear(64), surplus))

    def test_core_functions_get_what_they_declare(self) -> None:
        nothing = self.iron.ExternalFunction("nothing", source_string=BESIDE, arg_types=[line(16), np.int32])
        wrong = self.iron.ExternalFunction("nothing", source_string=BESIDE, arg_types=[line(8), np.int32])
        missing = self.iron.ExternalFunction("absent", source_string=BESIDE, arg_types=[line(16), np.int32])
        broken = self.iron.ExternalFunction("nothing", source_string="extern int;;; x", arg_types=[line(16), np.int32])
        beside = self.iron.ExternalFunction("write_beside", source_string=BESIDE, arg_types=[line(16)])
        unknown = self.iron.Kernel("nothing", "nowhere.o", [line(16), np.int32])
        for kind, words, body in (
            (errors.BadCall, "takes 2 arguments (16 int32, int32) and is given 1", lambda i, o: nothing(i.acquire(1))),
            (errors.BadCall, "argument 0 of core function nothing is a buffer", lambda i, o: nothing(3, 3)),
            (errors.BadCall, "argument 1 of core function nothing is a number", lambda i, o: nothing(i.acquire(1), o.acquire(1))),
            (errors.BadCall, "is declared 8 int32 and given element 0 of fifo in", lambda i, o: wrong(i.acquire(1), 3)),
            (errors.BadCall, 'has no function absent; it is looked up by that name, so it is declared extern "C"',
             lambda i, o: missing(i.acquire(1), 3)),
            (errors.SimulationError, "does not compile a core function", lambda i, o: broken(i.acquire(1), 3)),
            (errors.SimulationError, "write_beside wrote outside of element 0 of fifo out", lambda i, o: beside(o.acquire(1))),
            (errors.SimulationError, "linked from nowhere.o, and its source is not known", lambda i, o: unknown(i.acquire(1), 3)),
        ):
            with self.subTest(words):
                self.refuse(kind, words, self.core(body))

    def test_numbers_of_the_core_do_not_steer_python(self) -> None:
        def branch(of_in, of_out) -> None:
            if of_in.acquire(1)[0] == 0:
                of_out.acquire(1)

        self.refuse(errors.BadCall, "decides Python's `if`", self.core(branch))
        self.refuse(errors.BadCall, "is outside of", self.core(lambda i, o: i.acquire(1)[16]))

    def test_ends_are_used_once(self) -> None:
        def twice():
            fifo = self.iron.ObjectFifo(line(16), name="in")
            end = fifo.cons()
            self.iron.Worker(self.copy, [end])
            self.iron.Worker(self.copy, [end])

        self.refuse(errors.BadCall, "is already used by the worker at", twice)

        def nobody():
            fifo = self.iron.ObjectFifo(line(16), name="in")
            runtime = self.iron.Runtime()
            with runtime.sequence(line(64)) as a:
                runtime.fill(fifo.prod(), a)
            return self.resolve(runtime)

        self.refuse(errors.BadCall, "fifo in has no consumer", nobody)

    def test_unknown_names_say_what_there_is(self) -> None:
        with self.assertRaises(ImportError) as caught:
            exec("from aie.iron import Teleporter")
        self.assertIn("aie.iron has no 'Teleporter' here; simulated: Buffer, ExternalFunction, Kernel", str(caught.exception))
        with self.assertRaises(ImportError):
            exec("from aie.dialects.aiex import npu_sync")


class Program(unittest.TestCase):
    """`simulate.py` as its host sees it."""

    DESIGN = """
    import numpy as np
    from aie.iron import ObjectFifo, Program, Runtime
    from aie.iron.device import NPU2
    from design import Unsupported

    def ggml_op_copy(generation, sources, result, parameters):
        print("designs may print")
        if parameters[0] == 1:
            raise Unsupported("not this parameter")
        kind = np.ndarray[(result.size + parameters[4],), np.dtype[np.int32]]
        fifo = ObjectFifo(np.ndarray[(4,), np.dtype[np.int32]], name="in")
        runtime = Runtime()
        with runtime.sequence(kind, kind) as (a, c):
            if parameters[0] != 2:
                runtime.fill(fifo.prod(), a)
            else:
                fifo.prod().attach(runtime)
            runtime.drain(fifo.cons().forward().cons(), c, wait=True)
        return Program(NPU2(), runtime).resolve_program()
    """

    def ask(self, *requests: dict, raw: str = "") -> tuple[list[dict], int]:
        text = raw + "".join(json.dumps({"simulate": request}) + "\n" for request in requests)
        done = subprocess.run([sys.executable, str(SIMULATE)], input=text, capture_output=True, text=True, timeout=120, check=False)
        return [json.loads(answer) for answer in done.stdout.splitlines()], done.returncode

    def test_requests_are_answered_one_by_one(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "copy_op.py").write_text(textwrap.dedent(self.DESIGN))
            tensor = {"dtype": "i32", "ne": [32, 1, 1, 1], "nb": [4, 128, 128, 128]}
            data = np.arange(32, dtype=np.int32)
            data.tofile(f"{folder}/a.bin")

            def request(number: int, *params: int, **changes) -> dict:
                return {
                    "id": number, "kernel": "copy", "arch": "aie2p", "source": "copy_op.py", "function": "ggml_op_copy",
                    "node": {"op": "COPY", "params": [*params, *[0] * (16 - len(params))], "sources": [tensor, None], "output": tensor},
                    "kernels_dir": folder, "inputs": [f"{folder}/a.bin", None], "output": f"{folder}/out.bin",
                } | changes

            answers, code = self.ask(
                request(1), request(2, 1), request(3, function="ggml_op_other"), request(4, source="no.py"), request(5, 0, 8), request(6)
            )
            self.assertEqual(code, 0)
            self.assertEqual(answers[0], {"done": {"id": 1, "transfers": 2, "core_calls": 0, "cores": 0, "columns": 1}})
            np.testing.assert_array_equal(np.fromfile(f"{folder}/out.bin", np.int32), data)
            self.assertEqual(answers[1], {"unsupported": {"id": 2, "cause": "not this parameter"}})
            self.assertIn("has no function ggml_op_other", answers[2]["unsupported"]["cause"])
            self.assertIn("Kernel source not found", answers[3]["unsupported"]["cause"])
            self.assertIn("argument 0 has 128 bytes; the design declares 160", answers[4]["failed"]["cause"])
            self.assertEqual(answers[5]["done"]["id"], 6)

    def test_lines_that_are_no_requests_end_it(self) -> None:
        self.assertEqual(self.ask(raw="{]\n"), ([], 2))
        self.assertEqual(self.ask(raw='{"simulate": {"id": 1}}\n'), ([], 2))


if __name__ == "__main__":
    unittest.main()
