"""Run Jobs on Kubernetes, and fetch what pods have printed."""

from pathlib import Path
from typing import Any, Literal

from toolbox.ansible.roles import role
from toolbox.model.quantities import Seconds


class Kubernetes:
    """Run Jobs on Kubernetes, and fetch what pods have printed."""

    @role
    def run_job(  # noqa: PLR0913, PLR0917  # they are flags of a command line
        self,
        name: str,
        image: str,
        argv: list[str] | None = None,
        namespace: str | None = None,
        env: dict[str, str] | None = None,
        env_from_secrets: list[str] | None = None,
        resources: dict[str, dict[str, str]] | None = None,
        node_selector: dict[str, str] | None = None,
        service_account: str | None = None,
        image_pull_policy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent",
        patch: dict[str, Any] | None = None,
        timeout: Seconds = 3600,
        keep: bool = False,
        kubeconfig: Path | None = None,
        context: str | None = None,
    ) -> None:
        """
        Run a Job to its end, and fail if it does. One of its name that was left by an earlier call is replaced.

        Args:
            name: of the Job.
            image: what it runs.
            argv: the command line; that of the image when left out.
            namespace: where it runs; that of the context when left out.
            env: variables. They can be read in the cluster: no place for a secret.
            env_from_secrets: names of Secrets whose keys become variables.
            resources: `requests` and `limits`, each {cpu: 4, nvidia.com/gpu: 1}.
            node_selector: labels of the nodes on which it may run.
            service_account: the account as which it runs; that of the namespace when left out.
            image_pull_policy: when the image is pulled.
            patch: what is merged over the Job; a list replaces the one that is there.
            timeout: how long it may take, with the time until it starts, in seconds.
            keep: leave it in the cluster.
            kubeconfig: the file that says how to reach the cluster; KUBECONFIG or ~/.kube/config when left out.
            context: the context of it; its current one when left out.
        """

    @role
    def fetch_logs(
        self,
        namespace: str | None = None,
        selector: str | None = None,
        since: str | None = None,
        containers: list[str] | None = None,
        previous: bool = True,
        kubeconfig: Path | None = None,
        context: str | None = None,
    ) -> None:
        """
        Fetch what the containers of pods have printed, with the pods and the events about them.

        Args:
            namespace: where they are; that of the context when left out.
            selector: labels of the pods, as in app=server; all pods when left out.
            since: only what was printed in the last 30s, 10m, 2h or 1d; everything when left out.
            containers: their names; all containers when left out.
            previous: also what a container has printed before its last restart.
            kubeconfig: the file that says how to reach the cluster; KUBECONFIG or ~/.kube/config when left out.
            context: the context of it; its current one when left out.
        """
