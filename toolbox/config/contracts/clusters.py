"""The contract of the block `clusters`: the clusters and machines of a run, and their leases. See docs/clusters.md."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    RootModel,
    StringConstraints,
    ValidationError,
    model_validator,
)

from toolbox.ground.model.nearest import misspelled
from toolbox.ground.model.quantities import MAX_SECONDS, AnySeconds, AnyWholeSeconds

_KINDS: Final = ("existing", "pool", "create", "machine")
# The name becomes part of the names of created resources, whose length clouds limit.
_NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,17}[a-z0-9])?")
Text = Annotated[str, StringConstraints(min_length=1)]
Command = Annotated[list[str], Field(min_length=1)] | Text


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Existing(_Model):
    """A cluster that exists before and after the run."""

    kubeconfig: Text | None = Field(default=None, description="default: $KUBECONFIG or ~/.kube/config")
    context: Text | None = Field(default=None, description="default: the current context of the kubeconfig")
    namespace: Text | None = Field(default=None, description="default: the namespace of the context")


class Member(Existing):
    """A cluster of a pool."""

    name: Text


class Create(_Model):
    """A cluster that one command creates for the run, and another command destroys."""

    command: Command = Field(description="creates the cluster, and writes the file $KUBECONFIG")
    destroy: Command = Field(description="removes the cluster, even if it is incomplete")
    keep: bool = Field(default=False, description="keep the cluster after the run")


class Machine(_Model):
    """A shared machine."""

    lock_file: Text = Field(description="a file that all users of the machine can write")


class Lease(_Model):
    """How a cluster or machine is shared."""

    enabled: bool = True
    ttl: AnyWholeSeconds = Field(
        default=60, ge=3, le=MAX_SECONDS, description="seconds from the last heartbeat to the end"
    )
    wait: AnySeconds = Field(default=3600, ge=0, le=MAX_SECONDS, description="how many seconds to wait for the lease")
    between_steps: AnyWholeSeconds = Field(
        default=900,
        ge=0,
        le=MAX_SECONDS,
        description="how many seconds a run that is executed in several steps keeps the lease between two of them",
    )
    purpose: Text | None = Field(
        default=None, description="a message for other users; default: the name of the project"
    )
    name: Text = Field(default="topgallant", description="the Lease object; the same for all users")
    namespace: Text | None = Field(default=None, description="default: the namespace of the cluster")


class Cluster(BaseModel):
    """One cluster: `existing`, `pool`, `create` or `machine`. Its other fields belong to the project."""

    model_config = ConfigDict(extra="allow", frozen=True)

    existing: Existing | None = None
    pool: Annotated[list[Member], Field(min_length=1)] | None = None
    create: Create | None = None
    machine: Machine | None = None
    lease: Lease = Lease()
    compare: bool = Field(default=False, description="fail the run if it changes the cluster")

    @property
    def kind(self) -> str | None:
        """The kind of the cluster: `existing`, `pool`, `create` or `machine`; None if the entry sets none of them."""
        return next(iter(self._kinds()), None)

    def _kinds(self) -> list[str]:
        return [kind for kind in _KINDS if getattr(self, kind) is not None]

    @model_validator(mode="after")
    def _has_one_kind(self) -> Self:
        kinds = self._kinds()
        if len(kinds) > 1:
            raise ValueError(f"only one of {', '.join(_KINDS)} is allowed, but there are {' and '.join(kinds)}")
        for name in self.model_extra or {}:
            if meant := misspelled(name, type(self).model_fields):
                raise ValueError(f"unknown field `{name}`: did you mean `{meant}`?")
        if not kinds and self.model_fields_set & {"lease", "compare"}:
            raise ValueError(f"`lease` and `compare` need one of {', '.join(_KINDS)}")
        if self.compare and self.kind not in ("existing", "pool"):
            raise ValueError(f"`compare` needs a cluster that exists before and after the run, not `{self.kind}`")
        if self.machine is not None and not self.lease.enabled:
            raise ValueError("a machine needs its lease: if you need no lease, remove the entry of the machine")
        duplicates = [name for name, count in Counter(member.name for member in self.pool or ()).items() if count > 1]
        if duplicates:
            raise ValueError(f"two clusters of the pool have the name {duplicates[0]}")
        return self


def _cluster_or_none(entry: Any) -> Any:
    """Return an entry of the block if it describes a cluster; None if the entry belongs to the project."""
    if not isinstance(entry, Mapping):
        return None
    is_cluster = bool(Cluster.model_fields.keys() & entry.keys())
    return entry if is_cluster or any(_would_be_cluster(name, value) for name, value in entry.items()) else None


def _would_be_cluster(name: Any, value: Any) -> bool:
    """Tell whether an entry would be a cluster if the name of a field were spelled correctly.

    Such an entry is an error. If the entry were ignored, the run would use the cluster without a lease.
    """
    meant = misspelled(str(name), Cluster.model_fields)
    if meant is None or value is None:
        return False
    try:
        return Cluster.model_validate({meant: value}).kind is not None
    except ValidationError:
        return False


class Contract(RootModel[dict[str, Annotated[Cluster | None, BeforeValidator(_cluster_or_none)]]]):
    """The block `clusters`: the clusters by name. An entry that is null or belongs to the project becomes None."""

    @model_validator(mode="after")
    def _has_valid_names(self) -> Self:
        for name, cluster in self.root.items():
            if cluster is not None and cluster.kind and not _NAME.fullmatch(name):
                raise ValueError(f"`{name}` is not a name of a cluster: use up to 19 characters of a-z, 0-9 and -")
        return self
