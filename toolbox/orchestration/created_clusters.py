"""Clusters that a command of the configuration creates for one run, and a second command removes."""

from __future__ import annotations

import logging
import shlex
import shutil
from dataclasses import replace
from typing import Any, Final

import yaml

from toolbox.config.contracts import clusters as contract
from toolbox.kubernetes.api.connection import Cluster
from toolbox.model.clusters import Access
from toolbox.model.errors import ConfigurationError, StepError
from toolbox.model.events import ClusterChosen, ResourceMade, ResourcePlanned, ResourceRemoved, StepKind
from toolbox.model.verdicts import Cause, Verdict
from toolbox.orchestration import run
from toolbox.runs import steps
from toolbox.runs.run_state import ClusterState
from toolbox.runs.steps import Step
from toolbox.system import environ, filesystem, processes

log = logging.getLogger(__name__)

_NAME_VARIABLE: Final = "TOPGALLANT_CLUSTER"
_SECRET_FIELDS: Final = ("token", "password", "client-key-data")


class CreatedCluster:
    """One entry of the block `clusters`, of the kind `create`.

    Args:
        settings: the value of `create` in the configuration.
        top: the top step of the run. The name of the run becomes part of the name of the cluster.
        state: the state of the cluster before the run was resumed.
    """

    def __init__(self, settings: contract.Create, top: Step, state: ClusterState) -> None:
        self.name = state.name
        self._settings = settings
        self._recorder = top.recorder
        self._resource = f"{self.name}-{self._recorder.root.name}"
        # The kubeconfig gives full access to the cluster, so it stays out of the run directory, which may be published.
        self._kubeconfig = environ.state_directory() / "clusters" / self._resource / "kubeconfig"
        self.state = replace(state, is_made=state.is_made and self._kubeconfig.exists())
        if self.state.is_made:
            self._redact_secrets()

    @property
    def access(self) -> Access:
        """How to reach the cluster once it exists."""
        return Access(str(self._kubeconfig))

    @property
    def needs_removal(self) -> bool:
        """Whether the cluster may exist, even in part, and must be removed at the end of the run.

        With `keep`, a cluster that was fully created is not removed.
        """
        return self.state.planned is not None and not (self._settings.keep and self.state.is_made)

    def create(self) -> None:
        """Create the cluster if the run does not have it already. A cluster that exists in part is removed first.

        Raises:
            StepError: the command failed, or did not write a kubeconfig.
        """
        if self.state.is_made:
            return
        if self.state.planned is not None:
            self.remove()
        with steps.opened(f"create_{self.name}", kind=StepKind.GROUP) as step:
            filesystem.make_directory(self._kubeconfig.parent)
            removal = self._command_line(self._settings.destroy)
            planned = ResourcePlanned(step.identity, self._resource, self.name, str(self._kubeconfig), removal)
            step.recorder.record(planned)
            self.state = replace(self.state, planned=planned)
            run.run(self._settings.command, env=self._variables)
            self._check_kubeconfig()
            step.recorder.record(ResourceMade(self._resource))
            step.recorder.record(ClusterChosen(self.name, kubeconfig=str(self._kubeconfig)))
            self.state = replace(self.state, is_made=True)

    def remove(self) -> None:
        """Remove the cluster, even if only a part of it exists.

        Raises:
            StepError: the command failed.
        """
        with steps.opened(f"destroy_{self.name}", kind=StepKind.GROUP) as step:
            run.run(self._settings.destroy, env=self._variables)
            step.recorder.record(ResourceRemoved(self._resource))
        if self.state.planned is not None:
            processes.end_marked(step.recorder.root / self.state.planned.step)
        shutil.rmtree(self._kubeconfig.parent, ignore_errors=True)
        self.state = replace(self.state, planned=None, is_made=False)

    def _check_kubeconfig(self) -> None:
        """Check that the command has written a valid kubeconfig, and make the file private."""
        if not filesystem.size(self._kubeconfig):
            raise self._fault("the command succeeded, but did not write the file that $KUBECONFIG names")
        self._kubeconfig.chmod(filesystem.PRIVATE_FILE)
        self._redact_secrets()
        try:
            Cluster(self.access, label=self.name).close()
        except ConfigurationError as error:
            raise self._fault(str(error)) from None

    def _fault(self, text: str) -> StepError:
        message = f"clusters.{self.name}.create.command: {text}"
        return StepError(message, verdict=Verdict.ERROR, cause=Cause.INFRASTRUCTURE)

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
        return {"KUBECONFIG": str(self._kubeconfig), _NAME_VARIABLE: self._resource}

    def _command_line(self, command: list[str] | str) -> str:
        """Return a command line, including its environment variables, that a person can paste into a shell."""
        words = command if isinstance(command, list) else ["bash", "-c", command]
        return shlex.join(["env", *(f"{name}={value}" for name, value in self._variables.items()), *words])
