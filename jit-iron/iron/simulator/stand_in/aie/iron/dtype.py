"""Stands for `aie.iron.dtype`."""

from simulator.installation import unknown_name
from simulator.number_types import dtype_to_str, str_to_dtype

__getattr__ = unknown_name(__name__, ["dtype_to_str", "str_to_dtype"])
