"""The environment in which the real `gcloud` speaks to a test server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.servers.tpu.control import Control


def gcloud_environment(server: Control, directory: Path, *, project: str) -> Mapping[str, str]:
    """Return the variables with which `gcloud compute tpus` uses a test server, without any account.

    Args:
        directory: directory for the configuration, so that the one of the user has no effect.
    """
    return {
        "CLOUDSDK_CONFIG": str(directory),
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": server.rest_endpoint,
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "1",
        "CLOUDSDK_CORE_PROJECT": project,
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "1",
        "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "1",
    }
