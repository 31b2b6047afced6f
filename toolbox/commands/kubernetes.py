"""Run Jobs on Kubernetes, and fetch what pods have printed."""

from typing import Any

from toolbox.ansible.roles import role
from toolbox.interface.options import (
    Argv,
    Context,
    Env,
    EnvFromSecrets,
    ImagePullPolicy,
    Kubeconfig,
    Namespace,
    NodeSelector,
    Resources,
    Timeout,
)


class Kubernetes:
    """Run Jobs on Kubernetes, and fetch what pods have printed."""

    @role
    def run_job(  # noqa: PLR0913, PLR0917  # they are flags of a command line
        self,
        name: str,
        image: str,
        argv: Argv = None,
        namespace: Namespace = None,
        env: Env = None,
        env_from_secrets: EnvFromSecrets = None,
        resources: Resources = None,
        node_selector: NodeSelector = None,
        service_account: str | None = None,
        image_pull_policy: ImagePullPolicy = "IfNotPresent",
        patch: dict[str, Any] | None = None,
        timeout: Timeout = 3600,
        keep: bool = False,
        kubeconfig: Kubeconfig = None,
        context: Context = None,
    ) -> None:
        """
        Run a Job to its end, and fail if it does. One of its name that was left by an earlier call is replaced.

        Args:
            name: of the Job.
            image: what it runs.
            service_account: the account as which it runs; that of the namespace when left out.
            patch: what is merged over the Job; a list replaces the one that is there.
            timeout: how long it may take, with the time until it starts, in seconds.
            keep: leave it in the cluster.
        """

    @role
    def fetch_logs(
        self,
        namespace: Namespace = None,
        selector: str | None = None,
        since: str | None = None,
        containers: list[str] | None = None,
        previous: bool = True,
        kubeconfig: Kubeconfig = None,
        context: Context = None,
    ) -> None:
        """
        Fetch what the containers of pods have printed, with the pods and the events about them.

        Args:
            selector: labels of the pods, as in app=server; all pods when left out.
            since: only what was printed in the last 30s, 10m, 2h or 1d; everything when left out.
            containers: their names; all containers when left out.
            previous: also what a container has printed before its last restart.
        """
