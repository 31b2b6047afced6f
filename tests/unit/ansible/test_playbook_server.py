"""The helper for plays ends with a reason if a fork could not do what `ansible-playbook` does."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from toolbox.ansible import playbook_server
from toolbox.ansible.connection_plugins import local, ssh


def test_the_helper_for_plays_ends_if_ansible_writes_a_log_with_its_process_id(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        ended = subprocess.run(
            [sys.executable, str(playbook_server.__file__), str(listener.fileno())],
            pass_fds=[listener.fileno()],
            env={**os.environ, "ANSIBLE_LOG_PATH": str(tmp_path / "log")},
            capture_output=True,
            text=True,
            check=False,
        )
    assert ended.returncode == 1
    assert ended.stderr.startswith("ansible-core cannot be prepared: ValueError: Ansible writes a log (log_path)")


def test_other_plugins_can_import_from_our_plugins_what_those_of_ansible_have() -> None:
    """Our plugins are imported as `ansible.plugins.connection.local` and `ansible.plugins.connection.ssh`."""
    assert callable(ssh._ssh_retry)
    assert callable(local.to_bytes)
    with pytest.raises(AttributeError):
        ssh.nothing  # noqa: B018  # raises
