"""The contract of the block `machines` of this project: where runtimes are tested, and with which limits."""

from toolbox.features.notebooks.public import Machines


class Contract(Machines):
    """The block `machines`."""
