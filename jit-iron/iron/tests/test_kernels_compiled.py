"""The designs through the worker: the stand-in for IRON makes their modules, doubles of aiecc and Peano take what is made of them.

Shown is that designs of every file get through a worker with both forms of IRON's API, and that aiecc and Peano are given files that exist. The
doubles compile nothing; test_kernels_simulated.py has what designs compute.
"""

import struct
import unittest
from pathlib import Path

from kernel_cores import IRON, np
from support import Case, stand_in

KERNELS = IRON / "kernels"
TARGETS = {"aie2": "aie2-none-unknown-elf", "aie2p": "aie2p-none-unknown-elf"}
UNARY = "abs sgn neg step tanh elu relu sigmoid gelu gelu_quick silu hardswish hardsigmoid exp gelu_erf".split()
BYTES = {"f32": 4, "bf16": 2, "i8": 1, "i16": 2, "i32": 4}
PRODUCTS = (
    ("bf16", "bf16", "f32"), ("bf16", "f32", "f32"), ("f32", "f32", "f32"), ("i8", "i8", "i32"), ("i16", "i16", "i32"), ("i32", "i32", "i32"),
)  # fmt: skip
FLAT, ROWS = (4096, 3), (256, 5)


def tensor(dtype, shape):
    """A contiguous tensor of the protocol."""
    ne = [*shape, 1, 1, 1, 1][:4]
    nb = [BYTES[dtype] * int(np.prod(ne[:dimension])) for dimension in range(4)]
    return {"dtype": dtype, "ne": ne, "nb": nb}


def kernels():
    """File, function, result, sources and parameters of kernels, some of each file and type."""
    for dtype in ("f32", "bf16"):
        flat, rows = tensor(dtype, FLAT), tensor(dtype, ROWS)
        for name in ("add", "sub", "mul", "div"):
            yield "binary_ops.py", f"ggml_op_{name}", flat, [flat, tensor(dtype, FLAT[:1])], ()
        for name in UNARY:
            yield "unary_ops.py", f"ggml_unary_op_{name}", flat, [flat], ()
        yield "scale.py", "ggml_op_scale", flat, [flat], (0.5, 1.0)
        for name in ("reglu", "geglu", "swiglu", "geglu_erf", "geglu_quick"):
            yield "glu_ops.py", f"ggml_glu_op_{name}", rows, [rows, rows], ()
    rows = tensor("f32", ROWS)
    yield "rms_norm.py", "ggml_op_rms_norm", rows, [rows], (1e-5,)
    yield "soft_max.py", "ggml_op_soft_max", rows, [rows, tensor("f32", ROWS)], (1.0, 0.0)
    for dtype in ("i8", "i16", "i32"):
        flat = tensor(dtype, FLAT)
        for name in ("add", "sub", "mul"):
            yield "binary_ops.py", f"ggml_op_{name}", flat, [flat, flat], ()
    for left, right, result in PRODUCTS:
        sources = [tensor(left, (64, 96)), tensor(right, (64, 5))]
        yield "mul_mat.py", "ggml_op_mul_mat", tensor(result, (96, 5)), sources, ()


def words(params):
    """The 16 words of parameters."""
    return list(struct.unpack("<16i", struct.pack(f"<{len(params)}f", *params).ljust(64, b"\0")))


class CompiledTest(Case):
    def simulated(self, release):
        """An installation whose IRON is the simulator's, in the form of a release."""
        installation = self.installation({"1.3": "1.3.1", "1.4": "1.4.4"}[release])
        stand_in(installation, release)
        return installation

    def line(self, installation):
        return [str(installation.python), str(IRON / "worker.py")]

    def test_designs_of_every_file_get_through_the_worker(self):
        listed = list(kernels())
        for release in ("1.3", "1.4"):
            installation = self.simulated(release)
            worker = self.greeted(installation, line=self.line(installation))
            for arch, target in TARGETS.items():
                for source, function, output, sources, params in listed:
                    with self.subTest(release=release, arch=arch, function=function, types=[one["dtype"] for one in sources]):
                        installation.log.unlink(missing_ok=True)
                        node = {"params": words(params), "output": output, "sources": sources}
                        answer = worker.ask(function, self.work, source=source, arch=arch, **node)
                        self.assertIn("done", answer, worker.errors()[-2000:])
                        lines = installation.logged("clang++")
                        self.assertTrue(lines)
                        for line in lines:
                            self.assertIn(f"--target={target}", line)
                            self.assertTrue(Path(line[0]).is_relative_to(KERNELS / "cores"), line[0])
                        self.assertEqual(len(installation.logged("aiecc")), 1)
        with_designs = {path.name for path in KERNELS.glob("*.py") if "ggml_" in path.read_text(encoding="utf-8")}
        self.assertEqual({source for source, *_ in listed}, with_designs)

    def test_the_trial_compiles_for_both_generations(self):
        for release in ("1.3", "1.4"):
            installation = self.simulated(release)
            code, report = installation.check("--trial", "--kernels-dir", str(KERNELS))
            self.assertEqual((code, report["trial"]), (0, {"aie2": "compiled", "aie2p": "compiled"}), report)
            targets = [word for line in installation.logged("clang++") for word in line if word.startswith("--target=")]
            self.assertEqual(targets, [f"--target={target}" for target in TARGETS.values()])

    def test_a_trial_that_fails_says_why(self):
        installation = self.simulated("1.3")
        installation.environment["DOUBLE_AIECC"] = "fail"
        code, report = installation.check("--trial", "--kernels-dir", str(KERNELS))
        self.assertEqual((code, report["usable"]), (1, False))
        for arch in TARGETS:
            self.assertTrue(any(line.startswith(f"no kernel can be compiled for {arch}: ") for line in report["missing"]), report)


if __name__ == "__main__":
    unittest.main()
