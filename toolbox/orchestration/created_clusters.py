"""Clusters that a command of the configuration creates for one run, and a second command removes.

A cluster is on the ledger of the run before the command starts. `remote_resources` removes the cluster.
"""

from __future__ import annotations

import logging
import shlex
from pathlib import Path
from typing import Any, Final

import yaml

from toolbox.config.contracts import clusters as contract
from toolbox.ground.model.clusters import Access
from toolbox.ground.model.errors import ConfigurationError, InfrastructureError, StepError
from toolbox.ground.model.events import ClusterChosen, StepKind
from toolbox.ground.model.resources import OpenResource, Resource, ResourceLedger
from toolbox.ground.system import filesystem, processes
from toolbox.orchestration import cluster_connections, remote_resources, run, session
from toolbox.orchestration.resources import cluster as kind
from toolbox.records.runs import steps
from toolbox.records.runs.recorder import Recorder

log = logging.getLogger(__name__)

_TTL: Final = 7 * 86400.0
_NAME_VARIABLE: Final = "TOPGALLANT_CLUSTER"
_SECRET_FIELDS: Final = ("token", "password", "client-key-data")


class CreatedCluster:
    """One entry of the block `clusters`, of the kind `create`.

    Args:
        name: the name of the entry.
        settings: the value of `create` in the configuration.
        recorder: the recorder of the run. The name of the run becomes part of the name of the cluster.
    """

    def __init__(self, name: str, settings: contract.Create, recorder: Recorder) -> None:
        self.name = name
        self._settings = settings
        self._recorder = recorder
        self._cluster = f"{name}-{recorder.root.name}"
        self._kubeconfig = kind.kubeconfigs() / self._cluster / "kubeconfig"

    @property
    def access(self) -> Access:
        """How to reach the cluster once it exists."""
        return Access(str(self._kubeconfig))

    def create(self) -> None:
        """Create the cluster if the run does not have it already. A cluster that exists in part is removed first.

        Raises:
            StepError: a cluster that exists in part could not be removed, the command failed, or the command did not
                write a kubeconfig.
        """
        earlier, ledger = self._entry, self._recorder.ledger
        if earlier is not None and earlier.is_created and self._kubeconfig.exists():
            self._redact_secrets()
            return
        with steps.opened(f"create_{self.name}", kind=StepKind.GROUP) as step:
            resource = self._resource(step.directory)
            if earlier is not None:
                if not earlier.is_sealed:
                    ledger.plan(resource)  # replaces the entry of another machine, which would not be deleted
                self._remove_remains()
            ledger.plan(resource)
            filesystem.make_directory(self._kubeconfig.parent)
            run.run(self._settings.command, env=self._variables)
            self._check_kubeconfig()
            ledger.mark_created(resource)
            self._recorder.record(ClusterChosen(self.name, kubeconfig=str(self._kubeconfig)))

    def _remove_remains(self) -> None:
        """Remove a cluster that exists in part. If this fails, the cluster stays on the ledger."""
        entries = [entry for entry in [self._entry] if entry is not None]
        if failures := remote_resources.delete(self._recorder.ledger, entries):
            reason = "it exists in part, and could not be removed, so it was not created again"
            raise StepError("\n".join([f"clusters.{self.name}: {reason}", *map(str, failures)]))

    @property
    def _entry(self) -> OpenResource | None:
        key = (remote_resources.CLUSTER, self._cluster)
        return next((entry for entry in self._recorder.ledger.open_resources() if entry.resource.key == key), None)

    def _resource(self, step: Path) -> Resource:
        """Return the description of the cluster for the ledger.

        Args:
            step: the directory of the step that creates the cluster.
        """
        destroy = self._settings.destroy
        deletion = kind.Resource(
            arguments=[*processes.STRICT_BASH, destroy] if isinstance(destroy, str) else destroy,
            variables={**(session.current().variables if session.is_open() else {}), **self._variables},
            directory=str(Path.cwd()),
            created_by=str(step),
            kubeconfig=str(self._kubeconfig),
        )
        words = destroy if isinstance(destroy, list) else ["bash", "-c", destroy]
        command = shlex.join(["env", *(f"{name}={value}" for name, value in self._variables.items()), *words])
        return Resource(
            remote_resources.CLUSTER, self._cluster, deletion.model_dump(), _TTL, command, self._settings.keep
        )

    def _check_kubeconfig(self) -> None:
        """Check that the command has written a valid kubeconfig, and make the file private."""
        if not filesystem.size(self._kubeconfig):
            raise self._fault("the command succeeded, but did not write the file that $KUBECONFIG names")
        self._kubeconfig.chmod(filesystem.PRIVATE_FILE)
        self._redact_secrets()
        try:
            cluster_connections.connect(self.access, self.name).close()
        except ConfigurationError as error:
            raise self._fault(str(error)) from None

    def _fault(self, text: str) -> StepError:
        return StepError(f"clusters.{self.name}.create.command: {text}")

    def _redact_secrets(self) -> None:
        """Mask the credentials of the kubeconfig in all logs from now on."""
        try:
            content: Any = yaml.safe_load(self._kubeconfig.read_text(encoding="utf-8"))
            users = [entry["user"] for entry in content["users"]]
        except (OSError, ValueError, yaml.YAMLError, LookupError, TypeError) as error:
            log.debug("%s is not a kubeconfig: %s", self._kubeconfig, error)
            return
        self._recorder.redactor.add([str(user[name]) for user in users for name in _SECRET_FIELDS if user.get(name)])

    @property
    def _variables(self) -> dict[str, str]:
        return {"KUBECONFIG": str(self._kubeconfig), _NAME_VARIABLE: self._cluster}


def creation_steps(ledger: ResourceLedger) -> list[Path]:
    """Return the directories of the steps that created the clusters of a run.

    A local cluster may consist of processes of such a step, which must not be ended before the cluster is removed.
    """
    try:
        entries = [entry for entry in ledger.open_resources() if entry.resource.kind == remote_resources.CLUSTER]
    except InfrastructureError as error:  # the end of the run reports this error
        log.debug("%s", error)
        return []
    return [
        Path(str(entry.resource.deletion["created_by"])) for entry in entries if entry.is_created and entry.is_sealed
    ]
