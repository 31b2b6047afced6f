"""The contract of the block `tests` of this project: which models are served how, and which cases they get."""

from toolbox.features.inference.public import Specifications


class Contract(Specifications):
    """The block `tests`."""
