"""A program that has imported ansible-core, and executes `ansible-playbook` in forks.

ansible-core reads its settings when it is imported. So a fork refuses a request in which these settings differ from
those of the server, and `ansible-playbook` is started as a program instead.
"""

from __future__ import annotations

import atexit
import gc
import os
import re
import secrets
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from toolbox.ansible import ssh_links, warm_modules
from toolbox.ground.kit import fork_server
from toolbox.ground.kit.process_tree import MARK
from toolbox.ground.system import environ
from toolbox.targets.agent import startup_files

# Variables that ansible-core, Python and the C library read when they start.
_START_VARIABLES: Final = re.compile(
    r"(ANSIBLE_|PYTHON|LANG|LC_|LD_|MALLOC_|GLIBC_|OPENSSL_|HOME$|NO_COLOR$|PAGER$|TERM$)"
)
_FOLDER: Final = Path(__file__).resolve().parent
_LOCAL_TEMP: Final = "ANSIBLE_LOCAL_TEMP"
# To load a plugin, ansible-core parses its documentation, which is slow. `ansible-playbook` loads all plugins of these
# kinds before it reads the playbook.
_PLUGIN_KINDS: Final = ("connection_loader", "shell_loader", "become_loader")
# Each play of our roles uses these plugins.
_PLUGINS: Final = (
    ("callback_loader", "default"),
    ("strategy_loader", "linear"),
    ("inventory_loader", "yaml"),
    ("action_loader", "normal"),
    ("action_loader", "command"),
    ("cache_loader", "memory"),
)


def main() -> None:
    """Serve until the standard input is closed. The only argument is the descriptor of the listening socket."""
    listener = fork_server.listener_from_arguments()
    fork_server.replace_script_folder(str(Path(sys.executable).parent))  # the folder of `ansible-playbook`
    start, interpreter = _start_settings(environ.everything()), startup_files.Interpreter()
    gc.disable()  # the imports create many objects that stay, and take a sixth longer with collections
    try:
        constants, run_playbook = _import()
    except Exception as error:  # noqa: BLE001  # the modules of a later ansible-core may be different
        sys.exit(f"ansible-core cannot be prepared: {type(error).__name__}: {error}")
    gc.freeze()
    gc.enable()
    fork = fork_server.serve(listener, 0)
    if fork is None:
        os._exit(0)  # quicker than the end of an interpreter with many modules
    asked = _start_settings(fork.message["env"])
    if asked != start:
        names = sorted(name for name in {*asked, *start} if asked.get(name) != start.get(name))
        fork.refuse(f"{', '.join(names)} changed after Topgallant was started")
    if interpreter.has_changed():
        fork.refuse("a file that Python reads at its start changed after Topgallant was started")
    fork.begin(MARK)
    _use_new_ids()
    constants.DEFAULT_LOCAL_TMP = _local_temp()
    sys.argv = list(fork.message["args"])
    with (
        warm_modules.server.entered_by_process(fork.message["module_server"]),
        ssh_links.opened(Path(constants.DEFAULT_LOCAL_TMP, "ssh")),
    ):
        sys.exit(run_playbook())


def _import() -> tuple[Any, Callable[[], int | None]]:
    """Import ansible-core, and return its settings and the function of the program `ansible-playbook`."""
    from ansible import constants
    from ansible.cli import playbook

    if constants.DEFAULT_LOG_PATH:
        raise ValueError("Ansible writes a log (log_path), which contains the process id of ansible-playbook")
    _add_plugins()
    _preload()
    if os.fstat(sys.stderr.fileno()).st_size:
        raise ValueError("it prints messages when it is imported, which belong to the output of each play")
    Path(constants.DEFAULT_LOCAL_TMP).rmdir()  # each fork has its own
    return constants, playbook.main


def _start_settings(variables: dict[str, str]) -> dict[str, Any]:
    """Return what ansible-core reads when it is imported: variables, and the state of its configuration file."""
    file = Path(variables.get("ANSIBLE_CONFIG", os.devnull))
    state = (file.stat().st_mtime_ns, file.stat().st_size) if file.exists() else None
    settings = {name: value for name, value in variables.items() if _START_VARIABLES.match(name)}
    return {**settings, _LOCAL_TEMP: None, "the configuration file": state}


def _local_temp() -> str:
    """Create the directory for temporary files of one play, as ansible-core does when it is imported."""
    from ansible.config.manager import cleanup_tmp_file

    parent = Path(environ.everything()[_LOCAL_TEMP])
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = tempfile.mkdtemp(prefix=f"ansible-local-{os.getpid()}", dir=parent)
    atexit.register(cleanup_tmp_file, path, warn=True)
    return path


def _use_new_ids() -> None:
    """Replace the random part of the ids of plays and tasks, which ansible-core chooses when it is imported."""
    from ansible.utils import vars as ids

    ids.random_int = secrets.token_hex(len(ids.random_int) // 2)


def _add_plugins() -> None:
    """Add our plugins `local` and `ssh`, unless the user has a plugin with one of these names."""
    from ansible.plugins import connection, loader

    folder = Path(connection.__file__).parent
    if all(loader.connection_loader.find_plugin(name) == str(folder / f"{name}.py") for name in ("local", "ssh")):
        loader.connection_loader.add_directory(str(_FOLDER / "connection_plugins"))


def _preload() -> None:
    """Load what each play needs, in addition to the imports of `ansible-playbook`."""
    from ansible import config
    from ansible.plugins import loader
    from ansible.utils.collection_loader import _collection_finder

    parse = _collection_finder._meta_yml_to_dict  # noqa: SLF001  # see below
    runtime = Path(config.__file__).with_name("ansible_builtin_runtime.yml").read_bytes()
    parsed = parse(runtime, ("ansible.builtin", "runtime.yml"))
    # The documentation of this function allows another implementation, which may cache the result.
    _collection_finder._meta_yml_to_dict = (  # noqa: SLF001
        lambda text, content_id: parsed if text == runtime else parse(text, content_id)
    )
    known = (Path(config.__file__).parents[1], _FOLDER)
    for loader_name in _PLUGIN_KINDS:
        plugins = getattr(loader, loader_name)
        # A plugin of the user may print a warning, which would be missing in the plays.
        if all(any(Path(path).is_relative_to(folder) for folder in known) for path in plugins.all(path_only=True)):
            list(plugins.all(class_only=True))
    for loader_name, plugin in _PLUGINS:
        plugins = getattr(loader, loader_name)
        if Path(plugins.find_plugin(plugin)).is_relative_to(known[0]):  # not a plugin of the user with this name
            plugins.get(plugin, class_only=True)
        if loader_name == "action_loader":  # a play has not imported it yet, and its role may have another
            sys.modules.pop(f"{plugins.package}.{plugin}", None)
    # Forget where the plugins are, but not the plugins: a play may find others in the same folders.
    for loader_name in {*_PLUGIN_KINDS, *(loader_name for loader_name, _ in _PLUGINS)}:
        plugins = getattr(loader, loader_name)
        plugins._paths = None  # noqa: SLF001
        plugins._searched_paths.clear()  # noqa: SLF001
        plugins._plugin_path_cache.clear()  # noqa: SLF001


if __name__ == "__main__":
    main()
