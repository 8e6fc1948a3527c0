"""Reading request lines."""

import json
import re
import struct
import unittest
from pathlib import Path

import support
from protocol import ProtocolError, cause, parse


def changed(**changes: object) -> bytes:
    return support.request("ggml_op_copy", Path("/w"), **changes)


class ParseTest(unittest.TestCase):
    def test_every_field(self):
        request = parse(
            changed(params=[1, -1] + [0] * 14, sources=[support.tensor(), None], further_outputs=[support.tensor("f32", 8)])
        )
        self.assertEqual((request.id, request.kernel, request.arch, request.op), (7, "copy-64i32-64i32", "aie2p", "COPY"))
        self.assertEqual((request.source, request.function), ("text_ops.py", "ggml_op_copy"))
        self.assertEqual((request.work_dir, request.verbose), ("/w", False))
        self.assertEqual(request.op_params, struct.pack("<16i", 1, -1, *[0] * 14))
        self.assertEqual(request.output.shape, (64, 1, 1, 1))
        self.assertEqual(request.inputs, (request.output, None))
        self.assertEqual([tensor.dtype for tensor in request.further_outputs], ["f32"])

    def test_unknown_fields_are_ignored(self):
        self.assertEqual(parse(changed(later="version")), parse(changed()))

    def test_wrong_fields_are_named(self):
        for changes, message in (
            ({"id": "7"}, "id of compile is missing or not of type int"),
            ({"id": True}, "id of compile is missing or not of type int"),
            ({"verbose": 0}, "verbose of compile"),
            ({"node": None}, "node of compile"),
            ({"op": None}, "op of node"),
            ({"params": [0] * 15}, "params are not 16 32-bit integers"),
            ({"params": [0] * 15 + [2**31]}, "params are not 16 32-bit integers"),
            ({"params": [0.5] * 16}, "params are not 16 32-bit integers"),
            ({"sources": {}}, "sources of node"),
            ({"sources": [7]}, "a tensor is an object with dtype, ne and nb"),
            ({"output": {"dtype": [], "ne": [], "nb": []}}, "type [] is not known"),
            ({"output": support.tensor("f31")}, "type 'f31' is not known"),
            ({"arch": "aie2; rm"}, "arch 'aie2; rm' is not the name of a generation"),
            ({"source": "../x.py"}, "source '../x.py' is not the name of a Python file"),
            ({"source": "-x.py"}, "source '-x.py' is not"),
            ({"source": "below/../../x.py"}, "source 'below/../../x.py' is not"),
            ({"source": "/x.py"}, "source '/x.py' is not"),
            ({"source": "below/-x.py"}, "source 'below/-x.py' is not"),
            ({"source": "x.so"}, "source 'x.so' is not"),
            ({"function": "a.b"}, "function 'a.b' is not a name"),
            ({"work_dir": "relative"}, "work_dir 'relative' is not an absolute path"),
            ({"work_dir": "/a\0"}, "is not an absolute path"),
        ):
            with self.subTest(changes=changes), self.assertRaisesRegex(ProtocolError, re.escape(message)):
                parse(changed(**changes))

    def test_sources_may_be_in_folders_below(self):
        self.assertEqual(parse(changed(source="below/more/x.py")).source, "below/more/x.py")

    def test_what_is_no_request_is_rejected(self):
        for line, message in (
            (b"", "it is not JSON"),
            (b"compile", "it is not JSON"),
            (b"\xff", "it is not JSON"),
            (b"[" * 100_000, "it is not JSON"),
            (b"[]", 'only key is "compile"'),
            (b"{}", 'only key is "compile"'),
            (b'{"compile":{},"more":1}', 'only key is "compile"'),
            (b'{"compile":7}', "compile is not an object"),
            (b" " * (1 << 20) + b"{}", "longer than 1048576 bytes"),
        ):
            with self.subTest(line=line[:40]), self.assertRaisesRegex(ProtocolError, re.escape(message)):
                parse(line)

    def test_causes_are_unicode(self):
        content = cause(7, "caf\u00e9 \udc80")
        self.assertEqual(content, {"id": 7, "cause": "caf\u00e9 ?"})
        self.assertEqual(json.loads(json.dumps(content)), content)


if __name__ == "__main__":
    unittest.main()
