"""The environment variables by which the worker learns how to reach a Jupyter server. The backend sets them."""

from __future__ import annotations

from typing import Final

URL: Final = "TOPGALLANT_JUPYTER_URL"  # the address of the server, without a slash at its end
TOKEN: Final = "TOPGALLANT_JUPYTER_TOKEN"  # noqa: S105  # the name of the variable with the token
CA_FILE: Final = "TOPGALLANT_JUPYTER_CA_FILE"  # the authorities that the server's certificate is checked with
