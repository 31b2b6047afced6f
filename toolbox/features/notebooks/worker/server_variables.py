"""The environment variables that tell the worker how to reach a Jupyter server. The backend sets them."""

from __future__ import annotations

from typing import Final

URL: Final = "TOPGALLANT_JUPYTER_URL"  # the address of the server, without a slash at its end
TOKEN: Final = "TOPGALLANT_JUPYTER_TOKEN"  # noqa: S105  # the name of the variable with the token
CA_FILE: Final = "TOPGALLANT_JUPYTER_CA_FILE"  # a file with the authorities that verify the server's certificate
