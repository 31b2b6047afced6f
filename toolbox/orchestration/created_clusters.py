"""Clusters that a command of the user's makes for one run, and another one removes."""

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
        top: the top of the run, whose name is a part of the cluster's.
        state: the state of the cluster before the run was resumed.
    """

    def __init__(self, wanted: contract.Create, top: Step, state: ClusterState) -> None:
        self.name = state.name
        self._wanted = wanted
        self._recorder = top.recorder
        self._resource = f"{self.name}-{self._recorder.root.name}"
        # Not among the files of the run, which people publish: who has it has the cluster.
        self._kubeconfig = environ.state_directory() / "clusters" / self._resource / "kubeconfig"
        self.state = replace(state, is_made=state.is_made and self._kubeconfig.exists())
        if self.state.is_made:
            self._learn_secrets()

    @property
    def access(self) -> Access:
        """How it is reached, once it is there."""
        return Access(str(self._kubeconfig))

    @property
    def is_to_end(self) -> bool:
        """Whether there may be something of it that is not to be kept."""
        return self.state.planned is not None and not (self._wanted.keep and self.state.is_made)

    def make(self) -> None:
        """Make it, unless the run has done so before it was resumed. What was half made is removed first.

        Raises:
            StepError: the command did not do it.
        """
        if self.state.is_made:
            return
        if self.state.planned is not None:
            self.end()
        with steps.opened(f"create_{self.name}", kind=StepKind.GROUP) as step:
            filesystem.make_directory(self._kubeconfig.parent)
            removal = self._shown(self._wanted.destroy)
            planned = ResourcePlanned(step.identity, self._resource, self.name, str(self._kubeconfig), removal)
            step.recorder.record(planned)
            self.state = replace(self.state, planned=planned)
            run.run(self._wanted.command, env=self._variables)
            self._accept()
            step.recorder.record(ResourceMade(self._resource))
            step.recorder.record(ClusterChosen(self.name, kubeconfig=str(self._kubeconfig)))
            self.state = replace(self.state, is_made=True)

    def end(self) -> None:
        """Remove it, however much of it there is.

        Raises:
            StepError: the command did not do it.
        """
        with steps.opened(f"destroy_{self.name}", kind=StepKind.GROUP) as step:
            run.run(self._wanted.destroy, env=self._variables)
            step.recorder.record(ResourceRemoved(self._resource))
        if self.state.planned is not None:
            processes.end_marked(step.recorder.root / self.state.planned.step)
        shutil.rmtree(self._kubeconfig.parent, ignore_errors=True)
        self.state = replace(self.state, planned=None, is_made=False)

    def _accept(self) -> None:
        """See that the command has said how to reach the cluster."""
        if not filesystem.size(self._kubeconfig):
            raise self._fault("it succeeded, but did not write the file that $KUBECONFIG names")
        self._kubeconfig.chmod(filesystem.PRIVATE_FILE)
        self._learn_secrets()
        try:
            Cluster(self.access, label=self.name).close()
        except ConfigurationError as error:
            raise self._fault(str(error)) from None

    def _fault(self, text: str) -> StepError:
        message = f"clusters.{self.name}.create.command: {text}"
        return StepError(message, verdict=Verdict.ERROR, cause=Cause.INFRASTRUCTURE)

    def _learn_secrets(self) -> None:
        """Have nothing of what opens the cluster in any log."""
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

    def _shown(self, command: list[str] | str) -> str:
        """Return the command line by which a person does the same."""
        words = command if isinstance(command, list) else ["bash", "-c", command]
        return shlex.join(["env", *(f"{name}={value}" for name, value in self._variables.items()), *words])
