"""Executes Ansible modules in forks of an interpreter that has already imported `ansible.module_utils.basic`.

With pipelining, Ansible passes a Python program, the payload, to an interpreter on standard input. The payload contains
a ZIP file with the module and all of `ansible.module_utils` that the module imports. A fork of this server executes the
payload unchanged, so that all versions of ansible-core are supported. The server takes its copy of `module_utils` from
the ZIP file of the first payload. A fork uses a module of this copy only if all sources of the copy are equal to the
sources in its own ZIP file.

The module runs on targets too: it needs Linux and Python 3.8, and imports only the standard library.
"""

from __future__ import annotations

import _imp
import atexit
import builtins
import contextlib
import gc
import importlib
import importlib.machinery
import os
import pathlib
import re
import shutil
import signal
import socket
import sys
import tempfile
import traceback
import types
import zipimport
from typing import Any, Callable, Dict, List, NoReturn, Optional, Sequence, Tuple

from toolbox.ground.kit import fork_server
from toolbox.targets.agent import startup_files

# Modules of the standard library that payloads and `module_utils` import when they are executed.
_STANDARD = ("base64", "datetime", "runpy", "shutil", "tempfile", "zipfile")
_PRELOADED = ("ansible.module_utils.basic", "ansible.module_utils._internal._ansiballz._loader")
# The interpreter and the C library read these variables only at their start.
_START_VARIABLES = re.compile(r"(PYTHON|LANG|LC_|LD_|MALLOC_|GLIBC_|OPENSSL_|ASAN_|HOME$)")


def main() -> Optional[fork_server.Fork]:
    """Serve until the standard input is closed. Return a request in each fork.

    The arguments are the variable with the mark of a step, a private directory, the names of modules that the server
    imports as soon as a fork has imported them, and the descriptor of the listening socket.
    """
    listener = fork_server.listener_from_arguments()
    mark, directory, *later = sys.argv[1:]
    fork_server.replace_script_folder("")
    start = startup_files.Interpreter()
    return serve(listener, directory, later, mark=mark, check=lambda fork: _refuse_other_start(fork, start))


def serve(
    listener: socket.socket,
    directory: str,
    later: Sequence[str],
    *,
    mark: Optional[str],
    check: Callable[[fork_server.Fork], None],
) -> Optional[fork_server.Fork]:
    """Serve until the standard input is closed. Return a request in each fork.

    Args:
        directory: a private directory.
        later: the names of modules that the server imports as soon as a fork has imported them.
        mark: see `Fork.begin`.
        check: called in each fork; refuses the request if a new interpreter would start in another way.
    """
    for name in _STANDARD:
        importlib.import_module(name)
    preloaded = _Preloaded(directory, later)
    gc.freeze()
    fork = fork_server.serve(listener, 0, on_end=preloaded.load)
    if fork is not None:
        check(fork)
        preloaded.may_save = fork.message["has_core_library"]
        fork.begin(mark)
        sys.meta_path.insert(0, preloaded)
    return fork


def execute(payload: bytes) -> NoReturn:
    """Execute a payload as the interpreter executes a program on its standard input, and raise `SystemExit`."""
    main_module = types.ModuleType("__main__")
    main_module.__file__ = "<stdin>"
    main_module.__loader__ = importlib.machinery.BuiltinImporter
    main_module.__dict__["__builtins__"] = builtins
    main_module.__annotations__ = {}
    sys.modules["__main__"] = main_module
    sys.argv = [""]
    tempfile.tempdir = None
    try:
        exec(compile(payload, "<stdin>", "exec"), main_module.__dict__)  # noqa: S102  # what this server is for
    except SystemExit:
        raise
    except BaseException as error:
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next  # without this function
        sys.excepthook(type(error), error, error.__traceback__)
        if isinstance(error, KeyboardInterrupt):
            _end_by_interrupt()
        raise SystemExit(1) from None
    raise SystemExit(0)


def _end_by_interrupt() -> None:
    """End this process as Python ends after a `KeyboardInterrupt` that the program has not handled."""
    atexit._run_exitfuncs()  # noqa: SLF001  # a process that a signal ends does not call them
    sys.stdout.flush()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)


def _refuse_other_start(fork: fork_server.Fork, start: startup_files.Interpreter) -> None:
    """Refuse a request for which a new interpreter would start in another way than this interpreter has started."""
    theirs, ours = (
        {k: v for k, v in env.items() if _START_VARIABLES.match(k)} for env in (fork.message["env"], dict(os.environ))
    )
    if theirs != ours:
        names = sorted(name for name in {*theirs, *ours} if theirs.get(name) != ours.get(name))
        fork.refuse(f"the interpreter was started with another value of {', '.join(names)}")
    if fork.message["interpreter"] != sys.executable:
        fork.refuse(f"the interpreter is {sys.executable}")
    if start.has_changed():
        fork.refuse("a file that the interpreter reads at its start has changed")


class _Preloaded:
    """A finder of modules: those that the server has already imported.

    Args:
        directory: for the copy of a payload's ZIP file, from which the server imports `ansible.module_utils`.
        later: the names of other modules, which the server imports as soon as a fork has imported them.
    """

    may_save = False
    """Whether the server may import what this fork's payload contains, because nothing of a role replaces a part."""

    def __init__(self, directory: str, later: Sequence[str]) -> None:
        self._copy = os.path.join(directory, "payload.zip")
        self._later = {name: os.path.join(directory, name) for name in later}
        self._modules: Dict[str, types.ModuleType] = {}
        self._codes: List[types.CodeType] = []  # the code of all functions of the modules
        self._paths: List[Tuple[Dict[str, Any], str]] = []  # the names of variables that hold paths of the copy
        self._sources: Dict[str, bytes] = {}
        self._is_loaded = False
        self._is_equal: Optional[bool] = None  # whether the sources are equal to those of this fork's payload

    def load(self) -> None:
        """Import the modules that a fork has imported. After an error, the forks import these modules themselves."""
        try:
            self._import_later()
            if not self._is_loaded and os.path.exists(self._copy):
                self._is_loaded = True
                self._import_copy()
        except (Exception, SystemExit):  # for example because this Python is too old for the version of ansible-core
            traceback.print_exc()
        finally:
            sys.stdout.flush()  # otherwise each fork would print it

    def _import_later(self) -> None:
        for name, file in list(self._later.items()):
            if os.path.exists(file):
                del self._later[name]
                importlib.import_module(name)

    def _import_copy(self) -> None:
        path = sys.path[:]
        sys.path.insert(0, self._copy)
        try:
            importer = zipimport.zipimporter(self._copy)
            # Not every version of ansible-core has every module, and another version may be installed here.
            for name in [name for name in _PRELOADED if _is_in_archive(importer, name)]:
                importlib.import_module(name)
        finally:
            sys.path[:] = path
            modules = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "ansible"}
            sys.path_importer_cache.pop(self._copy, None)
        # Each fork makes the others again: those that `six` makes, and a package such as `distro` whose code puts
        # another module in its own place.
        archived = {
            name: module
            for name, module in modules.items()
            if isinstance(module.__loader__, zipimport.zipimporter) and module.__name__ == name
        }
        sources = {name: _source(module) for name, module in archived.items()}
        # A package without content is imported from the ZIP file of the payload.
        self._sources = {name: source for name, source in sources.items() if source}
        self._modules = {name: modules[name] for name in self._sources}
        self._paths = [
            (module.__dict__, variable)
            for module in self._modules.values()
            for variable, value in module.__dict__.items()
            if isinstance(value, (str, pathlib.PurePath)) and str(value).startswith(self._copy)
        ]
        gc.collect()
        codes = [function.__code__ for function in gc.get_objects() if isinstance(function, types.FunctionType)]
        self._codes = [code for code in codes if code.co_filename.startswith(self._copy)]
        gc.freeze()

    def find_spec(self, name: str, path: Optional[Sequence[str]] = None, _target: Any = None) -> Any:
        """Return the location of a module in the payload's ZIP file, with a loader that returns the imported module."""
        if name in self._later:
            with contextlib.suppress(OSError):  # no space is left: the server does not import the module
                open(self._later[name], "w").close()
        if name.partition(".")[0] != "ansible":
            return None
        if self._is_equal is None:
            self._is_equal = self._compare(sys.path[0])
            if self._is_equal:
                self._relocate(sys.path[0])
        if not self._is_equal or not path:
            return None
        # `zipimporter.find_spec` would compile the module.
        importer = zipimport.zipimporter(path[0])
        try:
            is_package = importer.is_package(name)
        except ImportError:
            return None
        stem = os.path.join(path[0], name.rpartition(".")[2])
        origin = os.path.join(stem, "__init__.py") if is_package else f"{stem}.py"
        loader = _Loader(importer, self._modules[name]) if name in self._modules else importer
        spec = importlib.machinery.ModuleSpec(name, loader, origin=origin, is_package=is_package)  # type: ignore[arg-type]  # a loader
        spec.has_location = True
        if is_package:
            spec.submodule_search_locations = [stem]
        return spec

    def _relocate(self, archive: str) -> None:
        """Replace the path of the copy by the path of a payload's ZIP file.

        Tracebacks and messages name the files of functions, and some modules keep paths that they derive from
        `__file__`.
        """
        for code in self._codes:
            path = archive + code.co_filename[len(self._copy) :]
            _imp._fix_co_filename(code, path)  # type: ignore[attr-defined]  # noqa: SLF001  # as `importlib` does
        for variables, name in self._paths:
            value = variables[name]
            variables[name] = type(value)(archive + str(value)[len(self._copy) :])

    def _compare(self, archive: str) -> bool:
        """Return whether all sources are equal to those in a ZIP file. Save the file if there are no sources yet."""
        try:
            importer = zipimport.zipimporter(archive)
            if self._modules:
                return all(_in_archive(importer, name) == source for name, source in self._sources.items())
            _in_archive(importer, _PRELOADED[0])
        except (OSError, ImportError):  # the payload has no ZIP file, or its module does not import all of the modules
            return False
        if self.may_save:
            self._save(archive)
        return False

    def _save(self, archive: str) -> None:
        """Save a ZIP file for the server. Do nothing if there is no space for it."""
        draft = f"{self._copy}.{os.getpid()}"
        try:
            shutil.copyfile(archive, draft)
            os.replace(draft, self._copy)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(draft)


class _Loader:
    """Returns an imported module, and gives it the location that its import from the ZIP file would give it."""

    def __init__(self, loader: Any, module: types.ModuleType) -> None:
        self._loader = loader
        self._module = module

    def create_module(self, _spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return self._module

    def exec_module(self, module: types.ModuleType) -> None:
        spec = module.__spec__
        assert spec is not None, "importlib sets it"
        spec.loader = self._loader
        module.__loader__ = self._loader
        module.__file__ = spec.origin
        if spec.submodule_search_locations is not None:
            module.__path__ = spec.submodule_search_locations


def _source(module: types.ModuleType) -> bytes:
    return bytes(module.__loader__.get_data(module.__file__))  # type: ignore[union-attr]  # a `zipimporter`


def _is_in_archive(importer: zipimport.zipimporter, name: str) -> bool:
    try:
        return bool(_in_archive(importer, name))
    except OSError:
        return False


def _in_archive(importer: zipimport.zipimporter, name: str) -> bytes:
    stem = os.path.join(importer.archive, *name.split("."))
    try:
        return importer.get_data(f"{stem}.py")
    except OSError:
        return importer.get_data(os.path.join(stem, "__init__.py"))


if __name__ == "__main__":
    request = main()
    if request is not None:
        execute(request.payload)
    os._exit(0)  # quicker than the end of an interpreter with many modules
