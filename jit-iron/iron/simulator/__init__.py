"""Executes IRON designs without IRON, an NPU or its compilers.

`installation.install()` puts a package named `aie` first on the module path. Designs that import it build an `ArrayProgram`
(array_program.py), which `machine.py` executes: cores one at a time, transfers in between, the core functions compiled by the
host's C++ compiler. docs/iron-simulator.md says what is modelled and what is not.
"""
