"""The contract of the block `inference` of this project: how the cases are sent."""

from toolbox.features.inference.public import InferenceBlock


class Contract(InferenceBlock):
    """The block `inference`."""
