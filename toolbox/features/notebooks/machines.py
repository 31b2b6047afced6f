"""The contract of the block `machines` of the project `notebooks`: where runtimes are tested, and with which limits."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, JsonValue, RootModel

from toolbox.features.notebooks.runtimes import Json, Name, Reasons, Strict, Text
from toolbox.ground.model.quantities import Seconds


class MachineTimeouts(Strict):
    """Time limits of the combinations on a machine, in seconds. They replace the time limits of the matrix.

    Args:
        wait: the longest time until the worker starts.
        run: the longest time for all tests of a combination; by default derived from the limits of its tests.
        silence: the longest time without a line of output.
    """

    wait: Seconds | None = None
    run: Seconds | None = None
    silence: Seconds | None = None


class Machine(Strict):
    """A kind of machine. Several machines may share a target, for example with different limits.

    Args:
        target: the names or labels of the targets.
        cpus: the number of processors that a kernel or a check may use; None for all.
        memory_gb: the memory that a kernel or a check may use, in units of 10^9 bytes; None for all.
        gpus: the number of GPUs.
        runtimes: the runtimes that are valid on the machine; None for all.
        promises: what the machine promises, in addition to the runtime.
        without_checks: the checks that do not apply to the machine, each with the reason.
    """

    target: Text | Annotated[list[Text], Field(min_length=1)]
    cpus: Annotated[int, Field(ge=1, le=4096)] | None = None
    memory_gb: Annotated[float, Field(ge=0.05, le=1_000_000)] | None = None
    gpus: Annotated[int, Field(ge=0, le=1024)] = 0
    runtimes: list[Text] | None = None
    promises: dict[Text, Json] = Field(default_factory=dict)
    without_checks: Reasons = Field(default_factory=dict)
    timeouts: MachineTimeouts = MachineTimeouts()

    @property
    def targets(self) -> list[str]:
        """The names or labels of the targets."""
        return [self.target] if isinstance(self.target, str) else self.target

    @property
    def own_promises(self) -> dict[str, JsonValue]:
        """The promises of the machine, with its processors, memory and GPUs."""
        limits: dict[str, JsonValue] = {"cpus": self.cpus, "memory_gb": self.memory_gb, "gpus": self.gpus or None}
        return {**{name: value for name, value in limits.items() if value is not None}, **self.promises}


class Machines(RootModel[Annotated[dict[Name, Machine], Field(min_length=1)]]):
    """The block `machines`."""

    is_open: ClassVar[bool] = True
