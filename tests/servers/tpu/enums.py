"""The enumerations of the API. proto-plus has no types: to mypy, their values would be integers."""

from __future__ import annotations

from typing import Any, Final

from google.cloud.tpu_v2 import types

NodeState: Final[Any] = types.Node.State
Health: Final[Any] = types.Node.Health
QueuedState: Final[Any] = types.QueuedResourceState.State
ApiVersion: Final[Any] = types.Node.ApiVersion
Initiator: Final[Any] = types.QueuedResourceState.StateInitiator
