"""Stands for `aie.helpers.dialects.ext.scf`."""

from simulator.control_flow import else_, if_, range_, yield_
from simulator.installation import unknown_name

_for = range_

__getattr__ = unknown_name(__name__, ["_for", "range_", "if_", "else_", "yield_"])
