"""A folder of designs in the shape of the C++ backend's: its package imports a build system that is not there."""

from .build import compile_op  # noqa: F401
