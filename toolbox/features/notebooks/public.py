"""What the project `notebooks`, and your own projects for notebooks, import from this feature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from toolbox.ground.system import modules

if TYPE_CHECKING:
    from toolbox.features.notebooks.combinations import derive
    from toolbox.features.notebooks.machines import Machines
    from toolbox.features.notebooks.notebooks_block import NotebooksBlock
    from toolbox.features.notebooks.runtimes import Runtimes

__all__ = [
    "Machines",
    "NotebooksBlock",
    "Runtimes",
    "derive",
]

# The module of each name: a module is imported when its name is first used.
_HOMES: Final = {
    "derive": "toolbox.features.notebooks.combinations:derive",
    "Machines": "toolbox.features.notebooks.machines:Machines",
    "NotebooksBlock": "toolbox.features.notebooks.notebooks_block:NotebooksBlock",
    "Runtimes": "toolbox.features.notebooks.runtimes:Runtimes",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used."""
    return modules.public(__name__, _HOMES, name)
