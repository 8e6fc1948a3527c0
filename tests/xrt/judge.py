"""Runs kernels of this project through XRT and checks every result.

`cargo xtask xrt` writes a job (JSON) and starts this program with XRT's Python module on the simulated kernel device. Nothing
of the project is imported: the results are computed here, from what ggml says the operations mean. Values are small whole
numbers, so every sum is exact and any difference is an error.

    judge.py JOB

The job names the kernels and what to do with them:

    {"kernels": [{"operation": "ADD", "xclbin": FILE, "instructions": FILE, "shapes": [[..], ..]}, ...],
     "part": "single" | "repeated" | "runlist" | "contexts", "count": N}

The last shape is the output's; shapes are innermost first. Prints one line of JSON; exit code 1 with the reason if anything is wrong.
"""

import json
import struct
import sys

import pyxrt

KERNEL = "REFERENCE"
# First argument of every run: the instructions are a transaction.
TRANSACTION = 3
# Arguments before the buffers: opcode, instructions, number of instruction words.
FIRST_BUFFER = 3
PATIENCE_MS = 60_000
COMPLETED = pyxrt.ert_cmd_state.ERT_CMD_STATE_COMPLETED
TO_DEVICE = pyxrt.xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE
FROM_DEVICE = pyxrt.xclBOSyncDirection.XCL_BO_SYNC_BO_FROM_DEVICE


class Wrong(Exception):
    """Something is not as it has to be."""


def elements(shape):
    count = 1
    for extent in shape:
        count *= extent
    return count


def values(seed, count):
    """Whole numbers from -8 to 8, different for every seed."""
    return [float((seed * 31 + index * 7 + index // 5) % 17 - 8) for index in range(count)]


def expected(operation, shapes, inputs):
    """The result, as ggml defines the operation."""
    if operation == "ADD":
        return [a + b for a, b in zip(*inputs)]
    if operation == "MUL":
        return [a * b for a, b in zip(*inputs)]
    if operation == "MUL_MAT":
        (length, rows), (_, columns) = shapes[0][:2], shapes[1][:2]
        row = lambda matrix, index: matrix[index * length : (index + 1) * length]
        return [
            sum(a * b for a, b in zip(row(inputs[0], i), row(inputs[1], j))) for j in range(columns) for i in range(rows)
        ]
    raise Wrong(f"this program does not know what {operation} computes")


class Loaded:
    """A kernel in a hardware context of its own."""

    def __init__(self, device, description):
        self.operation = description["operation"]
        self.shapes = description["shapes"]
        xclbin = pyxrt.xclbin(description["xclbin"])
        uuid = device.register_xclbin(xclbin)
        self.context = pyxrt.hw_context(device, uuid)
        self.kernel = pyxrt.kernel(self.context, KERNEL)
        with open(description["instructions"], "rb") as file:
            instructions = file.read()
        self.words = len(instructions) // 4
        self.instructions = pyxrt.bo(device, len(instructions), pyxrt.bo.cacheable, self.kernel.group_id(1))
        self.instructions.write(instructions, 0)
        self.instructions.sync(TO_DEVICE)
        self.device = device


class Run:
    """One dispatch with buffers of its own."""

    def __init__(self, loaded, seed):
        self.loaded = loaded
        place = lambda index: loaded.kernel.group_id(FIRST_BUFFER + index)
        buffer = lambda index, shape: pyxrt.bo(loaded.device, 4 * elements(shape), pyxrt.bo.host_only, place(index))
        self.buffers = [buffer(index, shape) for index, shape in enumerate(loaded.shapes)]
        self.run = pyxrt.run(loaded.kernel)
        self.run.set_arg(0, TRANSACTION)
        self.run.set_arg(1, loaded.instructions)
        self.run.set_arg(2, loaded.words)
        for index, buffer in enumerate(self.buffers):
            self.run.set_arg(FIRST_BUFFER + index, buffer)
        self.prepare(seed)

    def prepare(self, seed):
        """New inputs, and an output that holds something wrong."""
        *sources, output = self.loaded.shapes
        self.inputs = [values(seed + index, elements(shape)) for index, shape in enumerate(sources)]
        wrong = [12345.0] * elements(output)
        for buffer, numbers in zip(self.buffers, [*self.inputs, wrong]):
            buffer.write(struct.pack(f"<{len(numbers)}f", *numbers), 0)
            buffer.sync(TO_DEVICE)

    def finish(self):
        state = self.run.wait(PATIENCE_MS)
        if state != COMPLETED:
            raise Wrong(f"{self.loaded.operation} ended as {state}")

    def check(self):
        output = self.buffers[-1]
        output.sync(FROM_DEVICE)
        count = elements(self.loaded.shapes[-1])
        found = struct.unpack(f"<{count}f", bytes(output.map())[: 4 * count])
        for index, (want, have) in enumerate(zip(expected(self.loaded.operation, self.loaded.shapes, self.inputs), found)):
            if want != have:
                raise Wrong(f"{self.loaded.operation}: element {index} is {have}, expected {want}")


def single(kernels, count):
    """Each kernel, `count` times one by one, the buffers made once."""
    for kernel in kernels:
        run = Run(kernel, 1)
        for _ in range(count):
            run.run.start()
            run.finish()
        run.check()
    return count * len(kernels)


def repeated(kernels, count):
    """Each kernel, `count` times with new inputs, each result checked."""
    for kernel in kernels:
        run = Run(kernel, 0)
        for seed in range(count):
            run.prepare(seed)
            run.run.start()
            run.finish()
            run.check()
    return count * len(kernels)


def runlist(kernels, count, repetitions=1):
    """`count` runs of each kernel in a list, executed as a unit."""
    for kernel in kernels:
        runs = [Run(kernel, seed) for seed in range(count)]
        runs_of_the_list = pyxrt.runlist(kernel.context)
        for run in runs:
            runs_of_the_list.add(run.run)
        for _ in range(repetitions):
            runs_of_the_list.execute()
            runs_of_the_list.wait()
        for run in runs:
            run.check()
    return count * repetitions * len(kernels)


def contexts(kernels, count):
    """All kernels at once, each in its context: started together, then waited for."""
    if len(kernels) < 2:
        raise Wrong("two kernels are needed for two contexts")
    runs = [Run(kernel, 5) for kernel in kernels]
    for seed in range(count):
        for run in runs:
            run.prepare(seed)
        for run in runs:
            run.run.start()
        for run in runs:
            run.finish()
            run.check()
    return count * len(kernels)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        job = json.load(file)
    device = pyxrt.device(0)
    kernels = [Loaded(device, description) for description in job["kernels"]]
    part, count = job["part"], job["count"]
    if part == "runlist":
        dispatches = runlist(kernels, count, job.get("repetitions", 1))
    else:
        dispatches = {"single": single, "repeated": repeated, "contexts": contexts}[part](kernels, count)
    print(json.dumps({"part": part, "dispatches": dispatches, "kernels": len(kernels)}))


if __name__ == "__main__":
    try:
        main()
    except Wrong as error:
        sys.exit(f"judge.py: {error}")
