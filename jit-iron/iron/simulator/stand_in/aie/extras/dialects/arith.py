"""Stands for `aie.extras.dialects.arith`."""

import operator

from simulator.installation import unknown_name
from simulator.scalars import binary, binary_op, constant, constant_op, index_cast

ConstantOp = constant_op
for _names, _function in (
    (("addi", "addf"), operator.add), (("subi", "subf"), operator.sub), (("muli", "mulf"), operator.mul), (("divf",), operator.truediv),
    (("remsi", "remui"), operator.mod), (("andi",), operator.and_), (("ori",), operator.or_), (("xori",), operator.xor),
):
    for _name in _names:
        globals()[_name] = binary(_function)
        globals()[f"{_name[:-1].capitalize()}{_name[-1].upper()}Op"] = binary_op(_function)

__getattr__ = unknown_name(__name__, dir())
