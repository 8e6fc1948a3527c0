"""Stands for `aie.iron.controlflow`."""

from simulator.control_flow import range_
from simulator.installation import unknown_name

__getattr__ = unknown_name(__name__, ["range_"])
