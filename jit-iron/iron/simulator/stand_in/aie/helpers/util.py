"""Stands for `aie.helpers.util`."""

from simulator.array_program import array_dtype as np_ndarray_type_get_dtype
from simulator.array_program import array_shape as np_ndarray_type_get_shape
from simulator.installation import unknown_name

__getattr__ = unknown_name(__name__, ["np_ndarray_type_get_dtype", "np_ndarray_type_get_shape"])
