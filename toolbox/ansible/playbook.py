"""Runs one playbook, and calls a function for each event of Ansible. Only this module uses ansible-runner.

ansible-runner prepares the command line, the environment variables and the callback plugin, and reads Ansible's events
from the output. `toolbox.ground.system.processes` runs the process, and ends it when the scope is cancelled.
ansible-runner does not run the process: it would write the environment into a file, use a pseudo-terminal, and sleep
0.1 s after each play.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolbox.ansible import unsafe_yaml, warm
from toolbox.ansible.warm import AnsibleServers
from toolbox.ground.system import environ, filesystem, places, processes, scratch
from toolbox.ground.system.fork_servers import ForkedProcess

_TASK_HAS_STARTED: Final = "playbook_on_task_start"
EventHandler = Callable[[dict[str, Any]], bool]

# Environment variables of the user override these settings.
_SETTINGS: Final = {
    "ANSIBLE_NOCOLOR": "1",
    "ANSIBLE_PIPELINING": "1",  # don't write modules, which contain their arguments, to files on the host
    "ANSIBLE_NO_TARGET_SYSLOG": "1",  # don't write the arguments of modules to the system log of the host
    "ANSIBLE_RETRY_FILES_ENABLED": "0",
    "ANSIBLE_HOST_KEY_CHECKING": "1",  # ansible-runner would turn the check off
    "ANSIBLE_PYTHON_INTERPRETER": "auto_silent",
    "ANSIBLE_INVENTORY_ENABLED": "yaml",  # don't try other inventory plugins
    "ANSIBLE_SSH_ARGS": (
        "-C -o ControlMaster=auto -o ControlPersist=10s -o BatchMode=yes"
        # As in `ssh_machine`: end a dead connection, and ignore options that the user has for logins by hand.
        " -o ServerAliveInterval=5 -o ServerAliveCountMax=3 -o RemoteCommand=none -o RequestTTY=no"
    ),
}


@dataclass(frozen=True, slots=True)
class Play:
    """A playbook to run.

    Args:
        inventory: the content of Ansible's YAML inventory, in which all data is marked by `unsafe_yaml.untrusted`.
        private: a private directory for files that must not outlive the play.
        uses_ssh: whether the play connects to SSH hosts.
    """

    file: Path
    inventory: Mapping[str, Any]
    roles: Sequence[Path]
    step: Path
    private: Path
    uses_ssh: bool = False


def run(play: Play, handler: EventHandler) -> int:
    """Run a playbook to its end, and return the exit status of `ansible-playbook`.

    Args:
        handler: called with each event, by one thread at a time.

    Raises:
        Cancelled: the scope was cancelled, and Ansible and all processes that it started have ended.
    """
    from ansible_runner import Runner  # slow to import
    from ansible_runner.config.runner import RunnerConfig
    from ansible_runner.utils import OutputEventFilter

    helpers = warm.current()
    inventory = filesystem.write_text(play.private / "inventory.yaml", unsafe_yaml.dump(play.inventory))
    config = RunnerConfig(
        private_data_dir=str(play.private),
        playbook=str(play.file),
        inventory=str(inventory),
        roles_path=os.pathsep.join(map(str, play.roles)),
        envvars=_variables(play, helpers),
        suppress_env_files=True,
        fact_cache_type="memory",  # the default of Ansible; the facts of a play are not for another play
        quiet=True,
        verbosity=1,
    )
    config.prepare()
    lock = threading.Lock()

    def handle(event: dict[str, Any]) -> bool:
        # A play without tasks needs no server for modules, which would be a large part of its cost.
        if helpers is not None and event["event"] == _TASK_HAS_STARTED:
            helpers.expect_modules()
        with lock:
            return handler(event)

    runner = Runner(config, event_handler=handle)
    # Each stream has its own decoder, because two threads read the streams. The decoders get parts of lines, because no
    # line break follows an event: with whole lines, the start of a task would be reported only at the end of the task.
    output, errors = (OutputEventFilter(None, runner.event_callback, suppress_ansible_output=True) for _ in range(2))

    def start() -> ForkedProcess | None:
        return helpers.start_play(config.command, config.env, Path(config.cwd)) if helpers is not None else None

    had_lost_modules = helpers is not None and helpers.has_lost_modules
    completed = processes.run(
        config.command,
        env=config.env,
        cwd=Path(config.cwd),
        on_line=output.write,
        on_error_line=errors.write,
        whole_lines=False,
        start=start,
    )
    output.close()
    errors.close()
    if helpers is not None and helpers.has_lost_modules and not had_lost_modules:
        processes.end_marked(play.step)
    return completed.returncode


def feature_of_modules(tasks: Path) -> str | None:
    """Return the feature whose Ansible modules a file of tasks uses; None if it uses only modules of Ansible."""
    folders = places.homes("library")
    features = {file.stem: folder.parent.name for folder in folders for file in folder.glob("[!_]*.py")}
    keys = re.findall(r"^\s*(?:-\s+)?(\w+):", tasks.read_text(encoding="utf-8"), re.MULTILINE)
    return next((features[key] for key in keys if key in features), None)


def _variables(play: Play, helpers: AnsibleServers | None) -> dict[str, str]:
    # In the default directory, below the home directory, the path of a socket may be too long.
    sockets = scratch.ssh_sockets(create=play.uses_ssh) or (helpers.config.parent if helpers else play.private)
    settings = {**_SETTINGS, "ANSIBLE_SSH_CONTROL_PATH_DIR": str(sockets)}
    settings = {name: value for name, value in settings.items() if environ.get(name) is None}
    variables = processes.environment(play.step, settings)
    # Ansible refuses to start in a locale that is not installed or has another encoding. So tasks always print English.
    if sys.platform == "linux":  # macOS does not have this locale
        variables["LC_ALL"] = "C.UTF-8"
    # Use the ansible-playbook of this virtual environment, even if the environment is not activated.
    variables["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), variables.get("PATH", os.defpath)])
    # Without this variable, Ansible would read a configuration file in the working directory or the home directory.
    if helpers is not None and helpers.config.exists():  # otherwise the directory of the helpers was removed
        empty = helpers.config
    else:
        empty = filesystem.write_text(play.private / "ansible.cfg", "")
    own = environ.get("ANSIBLE_CONFIG")  # paths must be absolute: Ansible changes the directory
    variables["ANSIBLE_CONFIG"] = str(environ.expanded(own).absolute() if own else empty)
    # The modules of the user take precedence over the modules of Topgallant.
    folders = [environ.get("ANSIBLE_LIBRARY"), *map(str, places.folders("library"))]
    variables["ANSIBLE_LIBRARY"] = os.pathsep.join(filter(None, folders))
    if (folder := places.import_folder()) is not None:  # for the modules of Topgallant, and for its helper processes
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), environ.get("PYTHONPATH")]))
    if (kubeconfig := environ.get("KUBECONFIG")) is not None:
        paths = (str(environ.expanded(path).absolute()) for path in kubeconfig.split(os.pathsep) if path)
        variables["KUBECONFIG"] = os.pathsep.join(paths)
    variables["ANSIBLE_LOCAL_TEMP"] = str(play.private / "tmp")
    return variables
