"""Checks before a run whether its TPUs can be requested: credentials, project, zones, type and runtime version."""

from __future__ import annotations

from typing import Final

from toolbox.features.tpu.api import TpuApi
from toolbox.features.tpu.api_errors import RejectedRequest, TpuApiError
from toolbox.features.tpu.tpu_description import TpuDescription
from toolbox.features.tpu.tpu_states import Location
from toolbox.ground.model.errors import ConfigurationError, InfrastructureError

TIMEOUT: Final = 15.0
"""How many seconds the API may be unavailable."""


def verify(label: str, description: TpuDescription) -> None:
    """Check that each zone of a description offers its accelerator type and its runtime version.

    Whether there is capacity cannot be checked.

    Args:
        label: what needs the TPU, for messages.

    Raises:
        ConfigurationError: the description or a permission must be changed, or there are no credentials.
        InfrastructureError: the API does not answer.
    """
    api = TpuApi(description.endpoint, timeout=TIMEOUT)
    try:
        faults = [fault for zone in description.zone for fault in _faults(api, description, zone)]
    except RejectedRequest as error:
        raise ConfigurationError(f"{label}: {error}") from error
    except TpuApiError as error:
        raise InfrastructureError(f"{label}: {error}") from error
    finally:
        api.close()
    if faults:
        raise ConfigurationError(f"{label}: {'; '.join(faults)}")


def _faults(api: TpuApi, description: TpuDescription, zone: str) -> list[str]:
    location, kind = Location(description.project, zone), description.tpu_type.name
    faults = []
    if not api.has_accelerator_type(location, kind):
        faults.append(f"the zone {zone} has no accelerator type {kind} (https://cloud.google.com/tpu/docs/regions)")
    if not api.has_runtime_version(location, description.runtime_version):
        faults.append(f"the zone {zone} has no runtime version {description.runtime_version}")
    return faults
