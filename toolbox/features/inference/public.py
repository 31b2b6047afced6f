"""What the project `inference`, and your own projects for inference servers, import from this feature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from toolbox.ground.system import modules

if TYPE_CHECKING:
    from toolbox.features.inference.cells import InferenceBlock, derive
    from toolbox.features.inference.specifications import Frameworks, Specifications

__all__ = [
    "Frameworks",
    "InferenceBlock",
    "Specifications",
    "derive",
]

# The module of each name: a module is imported when its name is first used.
_HOMES: Final = {
    "InferenceBlock": "toolbox.features.inference.cells:InferenceBlock",
    "derive": "toolbox.features.inference.cells:derive",
    "Frameworks": "toolbox.features.inference.specifications:Frameworks",
    "Specifications": "toolbox.features.inference.specifications:Specifications",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used."""
    return modules.public(__name__, _HOMES, name)
