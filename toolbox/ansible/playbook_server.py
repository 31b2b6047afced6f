"""A program that has imported ansible-core, and executes `ansible-playbook` in forks.

ansible-core reads its settings when it is imported. So a fork refuses a request in which these settings differ from
those of the server, and `ansible-playbook` is started as a program instead.
"""

from __future__ import annotations

import atexit
import gc
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from toolbox.agent import fork_server
from toolbox.system.processes import MARK

# Variables that ansible-core, Python and the C library read when they start.
_START_VARIABLES: Final = re.compile(r"(ANSIBLE_|PYTHON|LANG|LC_|LD_|MALLOC_|GLIBC_|OPENSSL_|HOME$|NO_COLOR$|PAGER$|TERM$)")
_LOCAL_TEMP: Final = "ANSIBLE_LOCAL_TEMP"
# Each play of our roles uses these plugins. To load a plugin, ansible-core parses its documentation, which is slow.
_PLUGINS: Final = (
    ("connection_loader", "local"),
    ("connection_loader", "ssh"),
    ("shell_loader", "sh"),
    ("callback_loader", "default"),
    ("strategy_loader", "linear"),
    ("inventory_loader", "yaml"),
    ("action_loader", "normal"),
    ("action_loader", "command"),
    ("become_loader", "sudo"),
    ("cache_loader", "memory"),
)


def main() -> None:
    """Serve until the standard input is closed. The only argument is the descriptor of the listening socket."""
    listener = fork_server.listener_from_arguments()
    start = _start_variables(dict(os.environ))
    from ansible import constants
    from ansible.cli import playbook

    if getattr(constants, "DEFAULT_LOG_PATH", None):
        sys.exit("ANSIBLE_LOG_PATH is set: the lines of the log contain the process id of ansible-playbook")
    shared_temp = Path(constants.DEFAULT_LOCAL_TMP)
    _preload()
    shared_temp.rmdir()  # each fork has its own
    gc.freeze()
    fork = fork_server.serve(listener, 0)
    if fork is None:
        return
    if _start_variables(fork.message["env"]) != start:
        names = sorted(name for name, value in start.items() if fork.message["env"].get(name) != value)
        fork.refuse(f"other settings of Ansible: {', '.join(names) or 'a new variable'}")
    fork.begin(MARK)
    constants.DEFAULT_LOCAL_TMP = _local_temp(shared_temp)
    sys.argv = list(fork.message["args"])
    sys.path[0] = str(Path(sys.argv[0]).parent)
    sys.exit(playbook.main())


def _start_variables(variables: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if _START_VARIABLES.match(name) and name != _LOCAL_TEMP}


def _local_temp(shared: Path) -> str:
    """Create the directory for temporary files of one play, as ansible-core does when it is imported."""
    from ansible.config.manager import cleanup_tmp_file

    parent = Path(os.environ[_LOCAL_TEMP])  # noqa: TID251  # the environment of the play
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = tempfile.mkdtemp(prefix=f"ansible-local-{os.getpid()}", dir=parent)
    atexit.register(cleanup_tmp_file, path, warn=True)
    return path


def _preload() -> None:
    """Load what each play needs, in addition to the imports of `ansible-playbook`."""
    from ansible import config
    from ansible.plugins import loader
    from ansible.utils.collection_loader import _collection_finder

    parse = _collection_finder._meta_yml_to_dict
    parsed: dict[Any, Any] = {}

    def parse_once(text: bytes, content_id: Any) -> Any:
        if text not in parsed:
            parsed[text] = parse(text, content_id)
        return parsed[text]

    # The documentation of this function allows another implementation, which may cache the result.
    _collection_finder._meta_yml_to_dict = parse_once
    runtime = Path(config.__file__).with_name("ansible_builtin_runtime.yml")
    parse_once(runtime.read_bytes(), ("ansible.builtin", "runtime.yml"))
    for loader_name, plugin in _PLUGINS:
        getattr(loader, loader_name).get(plugin, class_only=True)


if __name__ == "__main__":
    main()
