"""Look at, prepare, share and clean up Kubernetes clusters."""

from pathlib import Path
from typing import Annotated, Any, Literal

from toolbox.ansible.roles import role
from toolbox.commands import _leases
from toolbox.interface.options import (
    Argv,
    Context,
    Env,
    EnvFromSecrets,
    Format,
    ImagePullPolicy,
    Kubeconfig,
    Namespace,
    NodeSelector,
    Resources,
    Timeout,
)
from toolbox.interface.signature import Help
from toolbox.kubernetes.api.objects import is_name
from toolbox.model.quantities import SecondsOrZero, WholeSeconds
from toolbox.model.secrets import Secret

LeaseName = Annotated[str, Help("the name of the lease: all who share the cluster use the same name.")]


class Cluster:
    """Look at, prepare, share and clean up Kubernetes clusters."""

    @role
    def wait_ready(
        self,
        nodes: int = 1,
        selector: str | None = None,
        system: bool = True,
        timeout: Timeout = 600,
        kubeconfig: Kubeconfig = None,
        context: Context = None,
    ) -> None:
        """
        Wait until a cluster is ready: its API server, its nodes, the DaemonSets of the system.

        Args:
            nodes: at least so many nodes have to be ready, and all that there are.
            selector: labels of the nodes that are looked at, as in gke-nodepool=a100; all nodes when left out.
            system: also wait for the DaemonSets of the namespace kube-system.
        """

    @role
    def capture_state(
        self,
        namespaces: list[str] | None = None,
        logs: bool = False,
        kubeconfig: Kubeconfig = None,
        context: Context = None,
    ) -> None:
        """
        Write down what a cluster is and what is in it. Of Secrets there are names, types and keys, and no value.

        Args:
            namespaces: whose objects are written; those of all that we may look at when left out.
            logs: also write what the containers in them have printed.
        """

    @role
    def prepare_namespace(
        self,
        namespace: str,
        labels: dict[str, str] | None = None,
        quota: dict[str, str] | None = None,
        limits: dict[str, dict[str, str]] | None = None,
        image_pull_secret: str | None = None,
        docker_config_file: Path | None = None,
        docker_config: Secret | None = None,
        service_account: str | None = None,
        may_run_cells: bool = True,
        cells_need: list[Literal["hosts", "slices", "leases"]] | None = None,
        network_policy: Literal["none", "isolated"] = "none",
        kubeconfig: Kubeconfig = None,
        context: Context = None,
    ) -> None:
        """
        Have a namespace, made if there is none, with what tests need there. What is there already stays as it is.

        Of quota, limits and network policy, what an earlier call has prepared and this one does not ask for is removed.

        Args:
            namespace: its name.
            labels: labels that it gets.
            quota: the most of each resource, as in {requests.nvidia.com/gpu: 8}.
            limits: of each container: `default`, `defaultRequest`, `min` and `max`, each {cpu: 1, memory: 1Gi}.
            image_pull_secret: the name of a Secret for pulling images, with one of the next two.
            docker_config_file: the file that it holds, as `docker login` writes it.
            docker_config: what it holds, as a value.
            service_account: the name of an account, which may use the Secret for pulling images.
            may_run_cells: whether the account may run the cells of a matrix in the namespace. An account that may
                create Jobs can read every Secret of the namespace.
            cells_need: what the account may do besides: run cells of several hosts, or of several TPU slices, or take
                leases in the namespace.
            network_policy: `isolated`: only pods of the namespace reach its pods.
        """
        contents = [each for each in (docker_config, docker_config_file) if each is not None]
        if len(contents) != (1 if image_pull_secret else 0):
            raise ValueError(
                "a Secret for pulling images needs its name, --image_pull_secret, and its content, either as "
                "--docker_config_file or as --docker_config"
            )

    @role
    def cleanup_namespace(
        self,
        namespace: str,
        run: str | None = None,
        delete_namespace: bool = False,
        timeout: Timeout = 300,
        force: bool = False,
        kubeconfig: Kubeconfig = None,
        context: Context = None,
    ) -> None:
        """
        Delete what is ours in a namespace, or all of it, and wait until it is gone.

        Args:
            namespace: its name. Those of the system are refused, and others that were not made by us without `force`.
            run: delete only what this run has left. A run that holds a lease of the cluster is refused without `force`.
            delete_namespace: delete the namespace itself, and all that is in it, whoever has put it there.
            force: also in a namespace that was not made by us, and also Jobs of runs that may be alive.
        """

    @role
    def preload_image(
        self,
        images: list[str],
        namespace: Namespace = None,
        node_selector: NodeSelector = None,
        tolerations: list[dict[str, str]] | None = None,
        image_pull_policy: ImagePullPolicy = "IfNotPresent",
        image_pull_secret: str | None = None,
        timeout: Timeout = 1800,
        kubeconfig: Kubeconfig = None,
        context: Context = None,
    ) -> None:
        """
        Have images pulled to the nodes before they are needed.

        Args:
            images: the images.
            namespace: where the DaemonSet runs that does it; that of the context when left out.
            node_selector: labels of the nodes; all nodes when left out.
            tolerations: taints that do not keep it away; those of accelerators when left out.
            image_pull_policy: `Always` asks the registry also where an image is there.
            image_pull_secret: the name of the Secret for pulling them.
        """

    @role
    def set_scale(
        self,
        kind: Literal["gke", "openshift"],
        name: str,
        replicas: int,
        maximum: int | None = None,
        cluster: str | None = None,
        location: str | None = None,
        project: str | None = None,
        namespace: str = "openshift-machine-api",
        timeout: Timeout = 1800,
        force: bool = False,
        kubeconfig: Kubeconfig = None,
        context: Context = None,
    ) -> None:
        """
        Set the number of nodes of a kind: of a node pool of GKE (by gcloud), of a MachineSet of OpenShift.

        It is refused below 0, above `maximum`, where an autoscaler would change it again, and where nodes would go that
        run pods of others.

        Args:
            kind: whose nodes they are.
            name: the node pool, or the MachineSet.
            replicas: how many nodes there shall be, in all zones together.
            maximum: how many there may be at most.
            cluster: the name of the cluster in GKE, the same as that of the kubeconfig.
            location: its region or zone; gcloud's own default when left out.
            project: its project in Google Cloud; gcloud's own default when left out.
            namespace: where the MachineSet is.
            timeout: how long it may take until so many are ready, in seconds.
            force: let nodes go where others run pods.
        """
        if kind == "gke" and cluster is None:
            raise ValueError(f"--cluster is missing: the GKE name of the cluster with the node pool {name}")
        for flag, value in {"name": name, "cluster": cluster}.items():
            if value is not None and not is_name(value):  # gcloud would take a leading `-` for a flag
                raise ValueError(f"--{flag}={value!r}: lower-case letters, digits, `.` and `-` were expected")

    @role
    def apply(
        self,
        manifests: Path,
        namespace: Namespace = None,
        wait: bool = True,
        timeout: Timeout = 300,
        force_conflicts: bool = False,
        kubeconfig: Kubeconfig = None,
        context: Context = None,
    ) -> None:
        """
        Have objects be in a cluster as manifests say (server-side apply, as `topgallant`).

        Args:
            manifests: a file of YAML or JSON, or a directory of them, which are applied in the order of their names.
            namespace: where objects go that name none; that of the context when left out.
            wait: wait until what can be ready is: Deployments, DaemonSets, StatefulSets, Jobs, Pods.
            timeout: how long that may take, in seconds.
            force_conflicts: take fields over that somebody else has set.
        """

    @role
    def deploy_server(  # noqa: PLR0913, PLR0917  # they are flags of a command line
        self,
        name: str,
        image: str,
        port: int,
        argv: Argv = None,
        namespace: Namespace = None,
        replicas: int = 1,
        resources: Resources = None,
        env: Env = None,
        env_from_secrets: EnvFromSecrets = None,
        readiness: str = "tcp",
        node_selector: NodeSelector = None,
        image_pull_policy: ImagePullPolicy = "IfNotPresent",
        patch: dict[str, Any] | None = None,
        timeout: Timeout = 600,
        kubeconfig: Kubeconfig = None,
        context: Context = None,
    ) -> None:
        """
        Have a server run, as a Deployment with a Service, and wait until it is ready.

        Args:
            name: of the Deployment and of the Service.
            image: what it runs, and
            port: where it listens.
            replicas: how many of it.
            readiness: a path that answers when it is ready, as in /health; or `tcp`: when it takes connections; or
                `none`: when it runs.
            patch: what is merged over the Deployment; a list replaces the one that is there.
            timeout: how long it may take until all are ready, in seconds.
        """

    @role
    def undeploy_server(
        self,
        name: str,
        namespace: Namespace = None,
        timeout: Timeout = 300,
        kubeconfig: Kubeconfig = None,
        context: Context = None,
    ) -> None:
        """
        Remove a server that `cluster deploy_server` has deployed, keep its logs, and wait until it is gone.

        Args:
            name: of the Deployment and of the Service; nothing is done where there are none.
        """

    def take_lease(
        self,
        purpose: str,
        *,
        ttl: WholeSeconds = 14400,
        wait: SecondsOrZero = 0,
        force: bool = False,
        name: LeaseName = "topgallant",
        namespace: Namespace = None,
        kubeconfig: Kubeconfig = None,
        context: Context = None,
    ) -> str:
        """
        Take a shared cluster for yourself, as `user@host`: runs wait until the lease is released, or has ended.

        There is no heartbeat: it ends at its time. To take it again, at any time, lets it end later.

        Args:
            purpose: what for, which others read who wait.
            ttl: how long it lasts, in seconds.
            wait: how long to wait while somebody else has it, in seconds.
            force: take it away from whoever has it, which ends a run; the lease records that.
        """
        with _leases.opened(name, namespace, kubeconfig, context) as lock:
            return _leases.take(lock, purpose, ttl=ttl, wait=wait, force=force)

    def release_lease(
        self,
        *,
        force: bool = False,
        name: LeaseName = "topgallant",
        namespace: Namespace = None,
        kubeconfig: Kubeconfig = None,
        context: Context = None,
    ) -> str:
        """
        Give a shared cluster back that `cluster take_lease` has taken.

        Args:
            force: also where it is somebody else's, which ends a run; the lease records that.
        """
        with _leases.opened(name, namespace, kubeconfig, context) as lock:
            return _leases.release(lock, force=force)

    def show_lease(
        self,
        *,
        name: LeaseName = "topgallant",
        namespace: Namespace = None,
        kubeconfig: Kubeconfig = None,
        context: Context = None,
        format: Format[Literal["text", "json"]] = "text",  # noqa: A002  # the words of the command line
    ) -> str:
        """Say who has a shared cluster, for what, and until when."""
        with _leases.opened(name, namespace, kubeconfig, context) as lock:
            return _leases.show(lock, as_json=format == "json")
