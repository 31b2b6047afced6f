"""Run Jobs on Kubernetes, and fetch the logs of pods."""

from typing import Any

from toolbox.ground.interface.options import (
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
from toolbox.ground.interface.registry import role
from toolbox.ground.model.quantities import Seconds


class Kubernetes:
    """Run Jobs on Kubernetes, and fetch the logs of pods."""

    @role
    def run_job(  # the parameters are flags of a command
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
        Run a Job, wait until it ends, and fail if the Job fails. A Job of the same name from an earlier call is
        replaced.

        Args:
            name: the name of the Job.
            image: the image of the Job.
            service_account: the service account of the Job; the default account of the namespace when left out.
            patch: changes to merge into the manifest of the Job, as in {spec: {parallelism: 2}}. A list in the patch
                replaces the list at the same place in the manifest.
            timeout: the time limit for the Job in seconds, including the time until it starts.
            keep: keep the Job in the cluster after its end.
        """

    @role
    def fetch_logs(
        self,
        namespace: Namespace = None,
        selector: str | None = None,
        since: Seconds | None = None,
        containers: list[str] | None = None,
        previous: bool = True,
        kubeconfig: Kubeconfig = None,
        context: Context = None,
    ) -> None:
        """
        Save the logs of pods, their descriptions and the events about them.

        Args:
            selector: a label selector for the pods, as in app=server; all pods when left out.
            since: the age of the oldest lines to save, as in 30s, 10m, 2h or 1d; all lines when left out.
            containers: the names of the containers; all containers when left out.
            previous: also save the log that each container wrote before its last restart.
        """
