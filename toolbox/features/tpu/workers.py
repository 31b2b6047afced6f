"""The workers of a TPU: how to select some of them, and how to reach them by SSH."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolbox.features.tpu.ssh_keys import SshKey
from toolbox.features.tpu.tpu_description import Ssh
from toolbox.features.tpu.tpu_states import Node
from toolbox.ground.model import addresses
from toolbox.ground.model.errors import StepError
from toolbox.ground.model.text import abbreviated, counted
from toolbox.ground.model.verdicts import Cause
from toolbox.targets.ssh_machine import Login

ALL: Final = "all"
_FORMS: Final = "write `all`, a number, a range such as 1-3, or a list such as 1,4"
_RANGE: Final = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker.

    Args:
        index: its number in the whole TPU. The workers of the first slice come first.
        slice: the number of its slice.
        address: the address to connect to.
        alias: a name under which its host key is recorded. It is different for each creation of the node, because a
            new node may get the address of an old one.
    """

    index: int
    slice: int
    address: str
    alias: str

    @property
    def name(self) -> str:
        """The name of the worker in messages."""
        return f"worker {self.index}"

    def login(self, ssh: Ssh, key: SshKey) -> Login:
        """Return how OpenSSH reaches the worker."""
        options = (
            f"IdentityFile={_quoted(key.private)}",
            "IdentitiesOnly=yes",
            f"UserKnownHostsFile={_quoted(key.known_hosts)}",
            "StrictHostKeyChecking=accept-new",
            f"HostKeyAlias={self.alias}",
            # Connections of their own, except those of `SshMachine`, whose options take precedence.
            "ControlMaster=no",
            "ControlPath=none",
            # Whatever the user's SSH configuration says: code under test must not reach this machine.
            "ForwardAgent=no",
            "ForwardX11=no",
            "ClearAllForwardings=yes",
            "LogLevel=ERROR",
        )
        return Login(self.address, ssh.user, ssh.port, options)


def of_nodes(nodes: Sequence[Node], ssh: Ssh) -> tuple[Worker, ...]:
    """Return the workers of nodes, which are in the order of their slices.

    Raises:
        StepError: a worker has no usable address.
    """
    places = [(slice_, node, worker) for slice_, node in enumerate(nodes) for worker in range(len(node.endpoints))]
    return tuple(
        Worker(index, slice_, _address(node, worker, ssh), _alias(node, worker))
        for index, (slice_, node, worker) in enumerate(places)
    )


def select(text: str, count: int) -> tuple[int, ...]:
    """Return the numbers of the workers that a text selects, in ascending order.

    Args:
        text: `all`, a number, a range such as `1-3`, or a list of them such as `1,4`.
        count: the number of workers of the TPU.

    Raises:
        ValueError: the text is not of this form, or names a worker that does not exist.
    """
    if text.strip().lower() == ALL:
        return tuple(range(count))
    indices: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"{abbreviated(text)} selects no workers: {_FORMS}")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"{abbreviated(text)} selects no workers: the range {part.strip()} is backwards")
        if last >= count:
            raise ValueError(
                f"there is no worker {last}: the TPU has {counted(count, 'worker')}, from 0 to {count - 1}"
            )
        indices.update(range(first, last + 1))
    return tuple(sorted(indices))


def _address(node: Node, worker: int, ssh: Ssh) -> str:
    endpoint = node.endpoints[worker]
    address = endpoint.internal if ssh.internal else endpoint.external
    if not address:
        kind, hint = ("internal", "") if ssh.internal else ("external", ": use ssh: {internal: true} in its network")
        raise StepError(f"worker {worker} of {node.id} has no {kind} address{hint}", cause=Cause.CONFIGURATION)
    try:
        return addresses.host(address)
    except ValueError as error:  # the API returned something else, which must not reach the command line of ssh
        raise StepError(f"worker {worker} of {node.id}: {error}", cause=Cause.INFRASTRUCTURE) from error


def _alias(node: Node, worker: int) -> str:
    created = f"{node.created.timestamp():.6f}" if node.created is not None else "0"
    return f"{node.id}-{created}-{worker}"


def _quoted(path: Path) -> str:
    """Return a path for an option of OpenSSH, which splits words and expands `%`."""
    return '"' + str(path).replace("%", "%%") + '"'
