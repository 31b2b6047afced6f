"""Imports a plugin of ansible-core that a plugin of ours replaces under the same name."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from ansible.plugins import connection


def connection_plugin(name: str) -> ModuleType:
    """Return the module of a connection plugin of ansible-core.

    Ansible imports our plugin as `ansible.plugins.connection.NAME`, so the module here needs another name.
    """
    file = Path(connection.__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"{__name__}.{name}", file)
    assert spec is not None, "the path ends with .py"
    assert spec.loader is not None, "the path names a file"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
