"""Runs one compiled program through XRT, unmodified: its xclbin, its instruction stream, buffers from files.

`cargo xtask real-programs --xrt` writes a job (JSON) and starts this with XRT's Python module on the simulated kernel device. The
results are compared by the caller; nothing of the project is imported.

    program.py JOB

    {"xclbin": FILE, "instructions": FILE, "arguments": [{"before": FILE, "after": FILE}, ...]}

`before` holds the bytes of an argument, `after` gets them when the program has ended. Prints one line of JSON.
"""

import json
import sys

import pyxrt

# First argument of every run: the instructions are a transaction.
TRANSACTION = 3
# Arguments before the buffers: opcode, instructions, number of instruction words.
FIRST_BUFFER = 3
PATIENCE_MS = 600_000
TO_DEVICE = pyxrt.xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE
FROM_DEVICE = pyxrt.xclBOSyncDirection.XCL_BO_SYNC_BO_FROM_DEVICE


def read(path):
    with open(path, "rb") as file:
        return file.read()


def main():
    job = json.loads(read(sys.argv[1]))
    device = pyxrt.device(0)
    xclbin = pyxrt.xclbin(job["xclbin"])
    context = pyxrt.hw_context(device, device.register_xclbin(xclbin))
    name = xclbin.get_kernels()[0].get_name()
    kernel = pyxrt.kernel(context, name)

    code = read(job["instructions"])
    instructions = pyxrt.bo(device, len(code), pyxrt.bo.cacheable, kernel.group_id(1))
    instructions.write(code, 0)
    instructions.sync(TO_DEVICE)

    buffers = []
    for index, argument in enumerate(job["arguments"]):
        content = read(argument["before"])
        buffer = pyxrt.bo(device, len(content), pyxrt.bo.host_only, kernel.group_id(FIRST_BUFFER + index))
        buffer.write(content, 0)
        buffer.sync(TO_DEVICE)
        buffers.append(buffer)

    state = kernel(TRANSACTION, instructions, len(code) // 4, *buffers).wait(PATIENCE_MS)
    if state != pyxrt.ert_cmd_state.ERT_CMD_STATE_COMPLETED:
        sys.exit(f"program.py: {name} ended as {state}")
    for argument, buffer in zip(job["arguments"], buffers):
        buffer.sync(FROM_DEVICE)
        with open(argument["after"], "wb") as file:
            file.write(bytes(buffer.map())[: len(read(argument["before"]))])
    print(json.dumps({"kernel": name}))


if __name__ == "__main__":
    main()
