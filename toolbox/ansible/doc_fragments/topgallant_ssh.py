"""The options of the connection plugin `ssh` of the installed ansible-core."""

from __future__ import annotations

import yaml

from toolbox.ansible import core_plugins


class ModuleDocFragment:
    """The class that Ansible looks for."""

    DOCUMENTATION = yaml.safe_dump(
        {"options": yaml.safe_load(core_plugins.connection_plugin("ssh").DOCUMENTATION).get("options", {})}
    )
