"""From a request to the two files of a kernel: design, core functions, aiecc.

Designs stay imported between requests, which is what makes a worker cheaper than a process per kernel: importing IRON takes
seconds. When a file that came from the designs' folder changes, all of them are imported anew.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import stat
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Callable

import commands
from commands import Failed, Unavailable
from design import CoreFunction, Design, Unsupported
from protocol import Request
from specification import descriptor, specified
from toolchain import Toolchain

# The attributes that IRON 1.3 and 1.4 keep a core function in.
_EXTERNAL_FUNCTION = ("object_file_name", "_source_file", "_source_string", "_include_dirs", "_compile_flags")


# The folder of designs as a package, so that designs may import what lies beside them with a dot in front. It is no folder's name:
# two folders of designs may be called the same, and a folder as a module of Python's library is.
PACKAGE = "ggml_hsa_designs"

# What the environment has that a worker runs in, as modules.
ENVIRONMENT = ("numpy", "ml_dtypes", "aie")


def import_failure(error: ImportError) -> str:
    """The text for a module of the environment that is missing; the host adds how to enter the environment."""
    return f"Failed to import kernel build module: {error}"


def _import_error(error: ImportError, source: str) -> Exception:
    """What an ImportError inside a design says: the environment is missing, a module is, or the design is wrong."""
    package = (error.name or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError):
        return Failed(f"{source} could not be imported: {type(error).__name__}: {error}")
    if package in ENVIRONMENT and importlib.util.find_spec(package) is None:
        return Unavailable(import_failure(error))
    return Unavailable(f"{source}: {error}; put the module beside the design, or install it into the environment of this Python")


class Compiler:
    """Compiles with one toolchain from one folder of designs. Not thread-safe: designs share IRON's registries."""

    def __init__(self, tools: Toolchain, kernels_dir: Path) -> None:
        self._tools = tools
        self._kernels_dir = kernels_dir.resolve()
        self._modules: dict[Path, ModuleType] = {}
        self._states: dict[Path, tuple[int, int]] = {}
        # Designs import what lies beside them. Behind everything else, so that they replace nothing.
        sys.path.append(str(self._kernels_dir))

    def compile(self, request: Request) -> tuple[str, str]:
        """Makes a kernel in the request's folder: the names of its PDI and its instructions.

        Raises Unsupported when there is no design for it, Failed with the verdict, Unavailable when it could not be tried.
        """
        work_dir = Path(request.work_dir)
        if not work_dir.is_dir():
            raise Unavailable(f"the work folder {work_dir} does not exist")
        function = self._function(request)
        try:
            design = self._run(function, request)
            return self._build(design, request, work_dir)
        except (Unsupported, Failed, Unavailable):
            raise
        except (MemoryError, OSError) as error:
            # A full disk, no more memory, no more processes.
            raise Unavailable(f"{type(error).__name__}: {error}") from None
        except Exception as error:  # A design may return text that is not valid, or options that no process can be given.
            traceback.print_exc()
            what = f"{type(error).__name__}: {error}"
            raise Failed(f"{request.source}: what {request.function} made cannot be compiled: {what}") from None

    def _function(self, request: Request) -> Callable:
        path = self._kernels_dir / request.source
        if not path.is_file():
            raise Unsupported(f"Kernel source not found: {path}")
        self._forget_changed()
        function = getattr(self._import(path), request.function, None)
        if not callable(function):
            raise Unsupported(f"{path} has no function {request.function}")
        return function

    def _import(self, path: Path) -> ModuleType:
        if path not in self._modules:
            self._modules[path] = _import(path, self._kernels_dir)
        return self._modules[path]

    def _imported(self) -> dict[Path, str]:
        """Files of the designs' folder that are imported, with their modules' names."""
        files = {Path(module.__file__): name for name, module in list(sys.modules.items()) if _file(module)}
        return {path: name for path, name in files.items() if path.is_relative_to(self._kernels_dir)}

    def _forget_changed(self) -> None:
        if all(_state(path) == state for path, state in self._states.items()):
            return
        for name in self._imported().values():
            del sys.modules[name]
        importlib.invalidate_caches()
        self._modules.clear()
        self._states.clear()

    def _run(self, function: Callable, request: Request) -> Design:
        """Runs a design; IRON's registry of core functions is empty before and after."""
        keywords = {}
        if request.further_outputs:
            if "further_outputs" not in inspect.signature(function).parameters:
                raise Unsupported(f"{request.source}: {request.function} makes one result, {request.op} has several")
            keywords["further_outputs"] = list(request.further_outputs)
        _clear_registry()
        try:
            params = bytearray(request.op_params)
            describe = descriptor(self._kernels_dir, self._import)
            inputs = [None if tensor is None else describe(tensor) for tensor in request.inputs]
            result = function(request.arch, inputs, describe(request.output), params, **keywords)
            return _as_design(specified(result, f"{request.source}: {request.function}"))
        except (Failed, Unavailable, MemoryError):
            raise
        except Unsupported as reason:
            raise Unsupported(str(reason) or f"{request.source}: {request.function} does not do this kernel") from None
        except ImportError as error:
            traceback.print_exc()
            raise _import_error(error, request.source) from None
        except (Exception, SystemExit) as error:
            traceback.print_exc()
            what = f"{type(error).__name__}: {error}"
            raise Failed(f"{request.source}: {request.function} failed: {what}") from None
        finally:
            _clear_registry()
            for path in self._imported():
                self._states.setdefault(path, _state(path))

    def _build(self, design: Design, request: Request, work_dir: Path) -> tuple[str, str]:
        made: dict[str, CoreFunction] = {}
        for function in design.core_functions:
            # IRON makes one object of several functions of a source.
            if function.object_file not in made:
                made[function.object_file] = function
                self._compile_core_function(function, request.arch, work_dir)
            elif made[function.object_file] != function:
                raise Failed(f"two different core functions are to become {function.object_file}")
        (work_dir / commands.MLIR).write_text(design.mlir, encoding="utf-8")
        outputs = (commands.PDI, commands.INSTRUCTIONS)
        for name in outputs:
            (work_dir / name).unlink(missing_ok=True)
        commands.run_aiecc(commands.module(self._tools, work_dir, request.verbose), work_dir)
        for name in outputs:
            if not _is_filled_file(work_dir / name):
                raise Failed(f"[aiecc] ended with success and left no {name}")
        return outputs

    def _compile_core_function(self, function: CoreFunction, arch: str, work_dir: Path) -> None:
        if function.text:
            source = work_dir / f"{function.object_file}.cc"
            source.write_text(function.text, encoding="utf-8")
        else:
            source = self._kernels_dir / function.source
            if not source.is_file():
                raise Failed(f"the core function's source {source} does not exist")
        includes = [self._kernels_dir / include for include in function.include_dirs]
        object_file = work_dir / function.object_file
        object_file.unlink(missing_ok=True)
        line = commands.core_function(self._tools, arch, source, object_file, includes, function.compile_flags)
        commands.run_peano(line, work_dir)
        if not _is_filled_file(object_file):
            raise Failed(f"[Peano] ended with success and left no {function.object_file}")


def _import(path: Path, kernels_dir: Path) -> ModuleType:
    # Without what the folder's __init__.py does: that of the C++ backend's imports its build system.
    package, folder = PACKAGE, kernels_dir
    sys.modules.setdefault(package, ModuleType(package)).__path__ = [str(folder)]
    for part in path.relative_to(kernels_dir).parent.parts:
        package, folder = f"{package}.{part}", folder / part
        sys.modules.setdefault(package, ModuleType(package)).__path__ = [str(folder)]
    name = f"{package}.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, ImportError):
            traceback.print_exc()
            raise _import_error(error, path.name) from None
        if isinstance(error, MemoryError):
            raise Unavailable("MemoryError while the design was imported") from None
        if isinstance(error, (Exception, SystemExit)):
            traceback.print_exc()
            raise Failed(f"{path.name} could not be imported: {type(error).__name__}: {error}") from None
        raise
    return module


def _file(module: object) -> str | None:
    return getattr(module, "__file__", None)


def _state(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _is_filled_file(path: Path) -> bool:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size > 0


def _registry() -> set | None:
    """IRON's set of core functions, when IRON is imported."""
    external_function = getattr(sys.modules.get("aie.iron"), "ExternalFunction", None)
    return None if external_function is None else external_function._instances


def _clear_registry() -> None:
    registry = _registry()
    if registry is not None:
        registry.clear()


def _as_design(result: object) -> Design:
    """What a design returned, as text with its core functions."""
    if isinstance(result, Design):
        return result
    operation = getattr(result, "operation", None)
    if operation is None and not isinstance(result, str):
        raise TypeError(f"a design returns a Design, MLIR text or an MLIR module, not {type(result).__name__}")
    # IRON 1.3 only logs what its verifier finds.
    if operation is not None and not operation.verify():
        raise ValueError("the MLIR module that the design made is not valid")
    functions = [_core_function(function) for function in _registry() or ()]
    functions.sort(key=lambda function: function.object_file)
    return Design(str(result), functions)


def _core_function(function: object) -> CoreFunction:
    missing = [name for name in _EXTERNAL_FUNCTION if not hasattr(function, name)]
    if missing:
        raise Failed(
            f"this version of mlir_aie stores core functions differently: {type(function).__name__} has no {missing[0]}"
        )
    source, text = function._source_file, function._source_string
    return CoreFunction(
        object_file=function.object_file_name,
        source="" if text else os.fspath(source or ""),
        text=text or "",
        include_dirs=tuple(map(os.fspath, function._include_dirs or ())),
        compile_flags=tuple(function._compile_flags or ()),
    )
