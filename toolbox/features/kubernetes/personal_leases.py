"""Implements `cluster take_lease`, `release_lease` and `show_lease`, with which a person shares a cluster."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime

from toolbox.features.kubernetes.api.connection import TIMEOUT, Cluster
from toolbox.features.kubernetes.lease_objects import LeaseObject
from toolbox.ground.interface.options import Context, Kubeconfig, Namespace
from toolbox.ground.interface.signature import FlagGroup
from toolbox.ground.model.clusters import Access
from toolbox.ground.model.errors import StepError
from toolbox.ground.model.foreign_text import printable
from toolbox.ground.model.text import duration
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.records.leases import heartbeats, leases, taking
from toolbox.records.leases.leases import Claim, Record


@dataclass(frozen=True, slots=True)
class LeaseFlags(FlagGroup):
    """The flags that name a lease and its cluster.

    Args:
        name: the name of the lease, which must be the same for all users of the cluster.
    """

    name: str = "topgallant"
    namespace: Namespace = None
    kubeconfig: Kubeconfig = None
    context: Context = None

    @contextmanager
    def opened(self) -> Iterator[LeaseObject]:
        """Yield the lease, and close the connection to the cluster at the end."""
        access = Access(str(self.kubeconfig) if self.kubeconfig else None, self.context, self.namespace)
        with closing(Cluster(access)) as cluster:
            yield LeaseObject(cluster, self.name)


def take(lock: LeaseObject, purpose: str, *, ttl: int, wait: float, force: bool) -> str:
    """Take the lease, and return a message that says when the lease expires.

    Raises:
        StepError: another user or run holds the lease, or the cluster does not answer.
    """
    claim = Claim(leases.current_user(), leases.current_user(), purpose, ttl=ttl, has_heartbeat=False)
    try:
        record = taking.take([lock], claim, wait=wait, report=_print_error, force=force).record
    except StepError as error:
        if error.cause is not Cause.CAPACITY:
            raise
        hint = "use --wait=SECONDS to wait for the lease, or --force to take the lease away"
        raise StepError(f"{error}\n{hint}", verdict=error.verdict, cause=error.cause) from None
    how_to_release = "to release the lease earlier, run `cluster release_lease` with the same options"
    return f"you hold {lock}, and {record.expiry}; {how_to_release}"


def release(lock: LeaseObject, *, force: bool) -> str:
    """Release the lease, and return a message for the user. With `force`, the holder may be another user or run."""
    me = leases.current_user()
    seen = lock.read(TIMEOUT)
    record = seen.record
    if not seen.version:
        return f"there is no lease {lock} to release"
    if record is not None and record.claim.holder != me:
        if not force:
            text = f"{lock} is {record}: use --force to take the lease away"
            raise StepError(text, verdict=Verdict.ERROR, cause=Cause.CAPACITY)
        taking.take(
            [lock], Claim(me, me, "releasing the lease", has_heartbeat=False), wait=0, report=_print_error, force=True
        )
    return f"{lock} is free" if heartbeats.release(lock, me) else f"{lock} is not held"


def show(lock: LeaseObject, *, as_json: bool) -> str:
    """Return the holder of the lease, the purpose and the expiry as text or JSON."""
    seen = lock.read(TIMEOUT)
    record = seen.record
    if as_json:
        return json.dumps({"lease": str(lock), "holder": _json(record) if record is not None else None}, indent=2)
    if record is None:
        return f"{lock} is not held" + ("" if seen.version else ", and no run has ever taken it")
    age = duration((leases.now() - record.renewed).total_seconds(), digits=0)
    renewal = f", {age} ago" if record.claim.has_heartbeat else ""
    forced = f"\n  it was taken by force {record.forced}" if record.forced else ""
    return f"{lock} is {record}; {record.expiry}{renewal}{forced}"


def _json(record: Record) -> dict[str, str | int | bool]:
    claim = record.claim
    return {
        "owner": claim.owner,
        "purpose": claim.purpose,
        "run": claim.run,
        "acquired": _text(record.acquired),
        "renewed": _text(record.renewed),
        "ttl": claim.ttl,
        "has_heartbeat": claim.has_heartbeat,
        "forced": record.forced,
    }


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")


def _print_error(text: str) -> None:
    print(printable(text), file=sys.stderr)  # noqa: T201  # stdout is for the result
