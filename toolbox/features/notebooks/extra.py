"""The libraries of this feature."""

from typing import Final

from toolbox.ground.system.extras import Extra

EXTRA: Final = Extra(
    "notebooks",
    (
        "papermill",
        "nbclient",
        "nbformat",
        "jupyter_client",
        "ipykernel",
        "pynvml",
        "nbconvert",
        "httpx",
        "tornado",
        "nh3",
    ),
)
