"""The contract of the block `notebooks` of this project: how the worker runs the tests."""

from toolbox.features.notebooks.public import NotebooksBlock


class Contract(NotebooksBlock):
    """The block `notebooks`."""
