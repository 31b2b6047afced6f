"""The contract of the block `frameworks` of this project: the servers that a config can name."""

from toolbox.features.inference.public import Frameworks


class Contract(Frameworks):
    """The block `frameworks`."""
