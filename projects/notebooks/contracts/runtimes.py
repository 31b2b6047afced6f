"""The contract of the block `runtimes` of this project: what is tested, and with which notebooks."""

from toolbox.features.notebooks.public import Runtimes


class Contract(Runtimes):
    """The block `runtimes`."""
