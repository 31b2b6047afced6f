"""What projects and commands import: `from toolbox.api import role, run, config, env, matrix, clusters`.

`toolbox.api`, `toolbox.extensions`, `toolbox.testing` and the module `public` of a feature are the public surface of
Topgallant. All other modules are private, and may change at any time.

- `role` marks a method as a toolbox command that an Ansible role carries out.
- `run`, `config`, `env`, `matrix` and `clusters` are the modules that the phases of a project use.
- `Configuration` is the argument of the functions `derive` and `resolve` of a project.
- `Secret`, `Help`, `FlagGroup`, `options` and `quantities` are for the parameters of commands, and for contracts.
- `builtin_root` finds the projects that Topgallant ships.
- `git` reads the repositories that a project tests.
- `detect_changes` finds where the level of a series shifted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from toolbox.ground.system import modules

if TYPE_CHECKING:
    from toolbox.config.configuration import Configuration
    from toolbox.ground.interface import options
    from toolbox.ground.interface.registry import role
    from toolbox.ground.interface.signature import FlagGroup, Help
    from toolbox.ground.model import quantities
    from toolbox.ground.model.secrets import Secret
    from toolbox.ground.system import git
    from toolbox.ground.system.places import builtin_root
    from toolbox.orchestration import clusters, config, env, matrix, run
    from toolbox.records.results.change_points import detect as detect_changes

__all__ = [
    "Configuration",
    "FlagGroup",
    "Help",
    "Secret",
    "builtin_root",
    "clusters",
    "config",
    "detect_changes",
    "env",
    "git",
    "matrix",
    "options",
    "quantities",
    "role",
    "run",
]

# The module of each name: a module is imported when its name is first used.
_HOMES: Final = {
    "role": "toolbox.ground.interface.registry:role",
    "Configuration": "toolbox.config.configuration:Configuration",
    "options": "toolbox.ground.interface:options",
    "FlagGroup": "toolbox.ground.interface.signature:FlagGroup",
    "Help": "toolbox.ground.interface.signature:Help",
    "quantities": "toolbox.ground.model:quantities",
    "Secret": "toolbox.ground.model.secrets:Secret",
    "git": "toolbox.ground.system:git",
    "builtin_root": "toolbox.ground.system.places:builtin_root",
    "clusters": "toolbox.orchestration:clusters",
    "config": "toolbox.orchestration:config",
    "env": "toolbox.orchestration:env",
    "matrix": "toolbox.orchestration:matrix",
    "run": "toolbox.orchestration:run",
    "detect_changes": "toolbox.records.results.change_points:detect",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used."""
    return modules.public(__name__, _HOMES, name)
