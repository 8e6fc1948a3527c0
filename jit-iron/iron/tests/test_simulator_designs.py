"""The simulator on small designs: results of every way in which data moves."""

from __future__ import annotations

import importlib
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

try:
    import numpy as np
    from simulator import installation, objects
    from simulator.core_functions import CoreSource
except ModuleNotFoundError as missing:  # The simulator needs numpy and ml_dtypes, as IRON does.
    raise unittest.SkipTest(f"{missing}; install numpy and ml_dtypes") from None

I32 = np.dtype[np.int32]
ADD_ONE = """
#include <cstdint>
extern "C" void add_number(const int32_t *in, int32_t *out, int32_t number, int32_t count) {
  for (int32_t i = 0; i < count; ++i) out[i] = in[i] + number;
}
extern "C" void write_beside(int32_t *out) { out[16] = 1; }
"""


def line(count: int) -> type:
    """A flat array."""
    return np.ndarray[(count,), I32]


def numbers(count: int, seed: int = 0) -> np.ndarray:
    """Some."""
    return np.random.default_rng(seed).integers(-1000, 1000, count).astype(np.int32)


def iron(release: str = "1.3"):
    """The stand-in, freshly imported."""
    installation.install(release)
    objects.forget_objects()
    return importlib.import_module("aie.iron"), importlib.import_module("aie.iron.device")


def range_(*bounds):
    """The loop of the stand-in."""
    return importlib.import_module("aie.iron.controlflow").range_(*bounds)


def copy(of_in, of_out) -> None:
    """A core's program that copies an element of 16 numbers."""
    source, target = of_in.acquire(1), of_out.acquire(1)
    for i in range_(16):
        target[i] = source[i]
    of_in.release(1)
    of_out.release(1)


class Movement(unittest.TestCase):
    """Everything arrives where it belongs."""

    def run_13(self, total: int, connect, device: str = "NPU2", inputs: int = 1):
        """Executes what `connect(iron, devices, runtime, tensors)` states inside of a sequence."""
        module, devices = iron()
        runtime = module.Runtime()
        with runtime.sequence(*[line(total)] * (inputs + 1)) as tensors:
            connect(module, devices, runtime, tensors)
        made = module.Program(getattr(devices, device)(), runtime).resolve_program()
        given = [numbers(total, seed) for seed in range(inputs)]
        result = made.execute([*given, np.zeros(total, dtype=np.int32)])[-1]
        return given, result, made

    def test_a_core_copies_with_either_form_of_the_api(self) -> None:
        def connect(module, _devices, runtime, tensors):
            fifo_in, fifo_out = module.ObjectFifo(line(16), name="in"), module.ObjectFifo(line(16), name="out")
            runtime.start(module.Worker(copy, [fifo_in.cons(), fifo_out.prod()]))
            runtime.fill(fifo_in.prod(), tensors[0])
            runtime.drain(fifo_out.cons(), tensors[1], wait=True)

        given, result, made = self.run_13(160, connect)
        np.testing.assert_array_equal(result, given[0])
        self.assertEqual([t["direction"] for t in made.report.transfers], ["MM2S", "S2MM"])
        self.assertEqual((made.report.cores, made.report.columns), (1, 1))

        module, devices = iron("1.4")
        fifo_in, fifo_out = module.ObjectFifo(line(16), name="in"), module.ObjectFifo(line(16), name="out")
        worker = module.Worker(copy, [fifo_in.cons(), fifo_out.prod()], tile=devices.Tile(3, 4))

        def sequence(a, c, source, target) -> None:
            group = module.TaskGroup()
            source.fill(a, group=group)
            target.drain(c, group=group, wait=True)
            group.finish()

        runtime = module.Runtime(sequence, [line(160), line(160), fifo_in.prod(), fifo_out.cons(tile=devices.Tile(2, 0))])
        made = module.Program(devices.NPU2(), runtime, workers=[worker]).resolve_program()
        np.testing.assert_array_equal(made.execute([given[0], np.zeros(160, np.int32)])[1], given[0])
        self.assertEqual(made.report.transfers[1]["column"], 2)

    def test_a_module_can_be_executed_again(self) -> None:
        def connect(module, _devices, runtime, tensors):
            fifo = module.ObjectFifo(line(16), name="in")
            runtime.fill(fifo.prod(), tensors[0])
            runtime.drain(fifo.cons().forward().cons(), tensors[1], wait=True)

        given, _, made = self.run_13(32, connect)
        other = numbers(32, 9)
        np.testing.assert_array_equal(made.execute([other, bytearray(128)])[1], other)
        output = bytearray(128)
        made.execute([given[0].tobytes(), output])
        self.assertEqual(bytes(output), given[0].tobytes())

    def test_split_and_join_divide_an_element_among_cores(self) -> None:
        def connect(module, _devices, runtime, tensors):
            whole_in, whole_out = module.ObjectFifo(line(64), name="in"), module.ObjectFifo(line(64), name="out")
            offsets = [0, 16, 32, 48]
            parts_in = whole_in.cons().split(offsets, obj_types=[line(16)] * 4)
            # The parts come back in another order than they went.
            parts_out = whole_out.prod().join(offsets[::-1], obj_types=[line(16)] * 4)
            runtime.start(*[module.Worker(copy, [i.cons(), o.prod()]) for i, o in zip(parts_in, parts_out)])
            runtime.fill(whole_in.prod(), tensors[0])
            runtime.drain(whole_out.cons(), tensors[1], wait=True)

        given, result, made = self.run_13(192, connect)
        np.testing.assert_array_equal(result, given[0].reshape(3, 4, 16)[:, ::-1].reshape(-1))
        self.assertEqual(made.report.cores, 4)

    def test_transformations_on_both_ends(self) -> None:
        def connect(module, _devices, runtime, tensors):
            fifo = module.ObjectFifo(line(32), name="in")
            # 4 rows of 8 leave a mem tile transposed; the second mem tile swaps the halves of what arrives.
            turned = fifo.cons().forward(name="turned", dims_to_stream=[(8, 1), (4, 8)])
            out = turned.cons(dims_from_stream=[(2, 16), (16, 1)]).forward(name="out")
            runtime.fill(fifo.prod(), tensors[0])
            runtime.drain(out.cons(), tensors[1], wait=True)

        given, result, _ = self.run_13(64, connect)
        np.testing.assert_array_equal(result, given[0].reshape(2, 4, 8).transpose(0, 2, 1).reshape(-1))

    def test_a_transformation_from_the_stream(self) -> None:
        def connect(module, _devices, runtime, tensors):
            fifo = module.ObjectFifo(line(32), name="in")
            out = fifo.cons(dims_from_stream=[(8, 1), (4, 8)]).forward(name="out")
            runtime.fill(fifo.prod(), tensors[0])
            runtime.drain(out.cons(), tensors[1], wait=True)

        given, result, _ = self.run_13(64, connect)
        np.testing.assert_array_equal(result, given[0].reshape(2, 8, 4).transpose(0, 2, 1).reshape(-1))

    def test_one_fifo_feeds_several_cores(self) -> None:
        def connect(module, _devices, runtime, tensors):
            fifo = module.ObjectFifo(line(16), name="in")
            outs = [module.ObjectFifo(line(16), name=f"out{i}") for i in range(2)]
            joined = module.ObjectFifo(line(32), name="joined")
            outs = joined.prod().join([0, 16], obj_types=[line(16)] * 2)
            runtime.start(*[module.Worker(copy, [fifo.cons(), out.prod()]) for out in outs])
            taps = importlib.import_module("aie.helpers.taplib")
            runtime.fill(fifo.prod(), tensors[0], taps.TensorAccessPattern((64,), 0, [1, 1, 1, 32], [0, 0, 0, 1]))
            runtime.drain(joined.cons(), tensors[1], wait=True)

        given, result, _ = self.run_13(64, connect)
        np.testing.assert_array_equal(result.reshape(2, 2, 16)[:, 0], given[0][:32].reshape(2, 16))
        np.testing.assert_array_equal(result.reshape(2, 2, 16)[:, 1], given[0][:32].reshape(2, 16))

    def test_taps_choose_and_repeat_elements(self) -> None:
        def connect(module, _devices, runtime, tensors):
            taps = importlib.import_module("aie.helpers.taplib")
            fifo = module.ObjectFifo(line(16), name="in")
            # Every other row of 8, twice.
            runtime.fill(fifo.prod(), tensors[0], taps.TensorAccessPattern((8, 8), 8, [2, 1, 4, 8], [0, 0, 16, 1]))
            runtime.drain(fifo.cons().forward().cons(), tensors[1], wait=True)

        given, result, _ = self.run_13(64, connect)
        np.testing.assert_array_equal(result, np.tile(given[0].reshape(8, 8)[1::2].reshape(-1), 2))

    def test_a_window_slides_over_elements_that_stay_acquired(self) -> None:
        def body(of_in, of_out) -> None:
            for step in range(4):
                elements = of_in.acquire(2)
                out = of_out.acquire(1)
                for i in range_(16):
                    out[i] = elements[0][i] + elements[1][i]
                of_in.release(1)
                of_out.release(1)
            of_in.release(1)

        def connect(module, _devices, runtime, tensors):
            fifo_in, fifo_out = module.ObjectFifo(line(16), depth=3, name="in"), module.ObjectFifo(line(16), name="out")
            taps = importlib.import_module("aie.helpers.taplib")
            runtime.start(module.Worker(body, [fifo_in.cons(), fifo_out.prod()], while_true=False))
            runtime.fill(fifo_in.prod(), tensors[0])
            runtime.drain(fifo_out.cons(), tensors[1], taps.TensorAccessPattern((80,), 0, [1, 1, 1, 64], [0, 0, 0, 1]), wait=True)

        given, result, _ = self.run_13(80, connect)
        rows = given[0].reshape(5, 16)
        np.testing.assert_array_equal(result[:64].reshape(4, 16), rows[:-1] + rows[1:])

    def test_parameters_barriers_core_functions_and_conditions(self) -> None:
        scf = None

        def body(of_in, of_out, parameter, barrier, function) -> None:
            barrier.wait_for_value(1)
            for round_ in range_(2):
                source, target = of_in.acquire(1), of_out.acquire(1)
                function(source, target, parameter[0], 16)
                with scf.if_(round_ == 1) as branch:
                    target[0] = 7
                with scf.else_(branch):
                    target[0] = 5
                of_in.release(1)
                of_out.release(1)

        module, devices = iron()
        scf = importlib.import_module("aie.helpers.dialects.scf")
        fifo_in, fifo_out = module.ObjectFifo(line(16), name="in"), module.ObjectFifo(line(16), name="out")
        parameter = module.Buffer(line(1), name="parameter", use_write_rtp=True)
        barrier = module.WorkerRuntimeBarrier()
        function = module.ExternalFunction(
            "add_number", source_string=ADD_ONE, arg_types=[line(16), line(16), np.int32, np.int32]
        )
        runtime = module.Runtime()
        with runtime.sequence(line(32), line(32)) as (a, c):
            runtime.start(module.Worker(body, [fifo_in.cons(), fifo_out.prod(), parameter, barrier, function]))
            runtime.inline_ops(lambda buffer: buffer.__setitem__(0, 41), [parameter])
            runtime.set_barrier(barrier, 1)
            runtime.fill(fifo_in.prod(), a)
            runtime.drain(fifo_out.cons(), c, wait=True)
        made = module.Program(devices.NPU1(), runtime).resolve_program()
        given = numbers(32)
        expected = given + 41
        expected[[0, 16]] = 5, 7
        np.testing.assert_array_equal(made.execute([given, bytearray(128)])[1], expected)
        self.assertEqual(made.report.core_calls, 2)

    def test_loops_hand_on_values(self) -> None:
        def body(of_in, of_out) -> None:
            scf = importlib.import_module("aie.helpers.dialects.scf")
            source, target = of_in.acquire(1), of_out.acquire(1)
            for i, total, result in scf._for(16, iter_args=[0], insert_yield=False):
                scf.yield_([total + source[i]])
            target[0] = result
            of_in.release(1)
            of_out.release(1)

        def connect(module, _devices, runtime, tensors):
            fifo_in, fifo_out = module.ObjectFifo(line(16), name="in"), module.ObjectFifo(line(1), name="out")
            taps = importlib.import_module("aie.helpers.taplib")
            runtime.start(module.Worker(body, [fifo_in.cons(), fifo_out.prod()]))
            runtime.fill(fifo_in.prod(), tensors[0])
            runtime.drain(fifo_out.cons(), tensors[1], taps.TensorAccessPattern((32,), 0, [1, 1, 1, 2], [0, 0, 0, 1]), wait=True)

        given, result, _ = self.run_13(32, connect)
        np.testing.assert_array_equal(result[:2], given[0].reshape(2, 16).sum(1))

    def test_the_placed_api(self) -> None:
        iron()
        aie, aiex = importlib.import_module("aie.dialects.aie"), importlib.import_module("aie.dialects.aiex")
        context = importlib.import_module("aie.extras.context")
        objects.provide_object("add.o", CoreSource(text=ADD_ONE))
        with context.mlir_mod_ctx() as ctx:

            @aie.device(aie.AIEDevice.npu1_2col)
            def body() -> None:
                add = aie.external_func("add_number", [line(16), line(16), np.int32, np.int32], link_with="add.o")
                fifos = []
                # The core functions' loop variable is that of the time when they are stated.
                for column in range(2):
                    shim, core = aie.tile(column, 0), aie.tile(column, 2)
                    fifos.append(
                        [
                            aie.object_fifo(f"in{column}", shim, core, 2, line(16)),
                            aie.object_fifo(f"out{column}", core, shim, [2, 2], line(16)),
                        ]
                    )

                    @aie.core(core)
                    def program() -> None:
                        for _ in aie.range_(sys.maxsize):
                            source = fifos[column][0].acquire(aie.ObjectFifoPort.Consume, 1)
                            target = fifos[column][1].acquire(aie.ObjectFifoPort.Produce, 1)
                            add(source, target, 10 + column, 16)
                            fifos[column][0].release(aie.ObjectFifoPort.Consume, 1)
                            fifos[column][1].release(aie.ObjectFifoPort.Produce, 1)

                @aiex.runtime_sequence(line(64), line(64))
                def sequence(a, c) -> None:
                    for column in range(2):
                        where = {"offsets": [0, 0, 0, 32 * column], "sizes": [1, 1, 1, 32], "strides": [0, 0, 0, 1]}
                        aiex.npu_dma_memcpy_nd(metadata=fifos[column][0], bd_id=1, mem=a, **where)
                        aiex.npu_dma_memcpy_nd(metadata=f"out{column}", bd_id=0, mem=c, **where)
                    aiex.dma_wait(fifos[0][1], fifos[1][1])

        given = numbers(64)
        result = ctx.module.execute([given, bytearray(256)])[1]
        np.testing.assert_array_equal(result, given + np.repeat([10, 11], 32))


if __name__ == "__main__":
    unittest.main()
