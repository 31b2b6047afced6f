"""Inspect, prepare, share and clean up Kubernetes clusters."""

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

from toolbox.features.kubernetes import owned_objects, personal_leases
from toolbox.features.kubernetes.api.connection import Cluster as Connection
from toolbox.features.kubernetes.api.objects import is_name
from toolbox.features.kubernetes.personal_leases import LeaseFlags
from toolbox.ground.interface.options import (
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
from toolbox.ground.interface.registry import role
from toolbox.ground.model.clusters import Access
from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.model.quantities import SecondsOrZero, WholeSeconds
from toolbox.ground.model.secrets import Secret
from toolbox.ground.system import environ
from toolbox.orchestration import session


class Cluster:
    """Inspect, prepare, share and clean up Kubernetes clusters."""

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
        Wait until a cluster is ready: its API server, its nodes, and the DaemonSets of the namespace kube-system.

        Args:
            nodes: the minimum number of nodes. If there are more nodes, all of them must be ready.
            selector: wait only for the nodes with this label, as in cloud.google.com/gke-nodepool=a100; for all nodes
                when left out.
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
        Record the version, the nodes and the objects of a cluster, but not the values of Secrets.

        Args:
            namespaces: record the objects in these namespaces. When left out, all namespaces are recorded, or only the
                namespace of the context if the account may not list all namespaces.
            logs: also record the logs of the containers in the namespaces.
        """

    @role
    def prepare_namespace(  # the parameters are flags of a command
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
        keep: bool = False,
        kubeconfig: Kubeconfig = None,
        context: Context = None,
    ) -> None:
        """
        Create a namespace if it does not exist, and add a quota, a service account and other objects for tests.

        Other objects in the namespace stay unchanged, except the Secret and the service account with the given names. A
        quota, limits or a network policy of an earlier call are removed if this call leaves them out.

        Args:
            namespace: the name of the namespace.
            labels: labels to add to the namespace.
            quota: how much of each resource the namespace may use, as in {requests.nvidia.com/gpu: 8}.
            limits: the `default`, `defaultRequest`, `min` and `max` of the resources of each container, as in
                {default: {cpu: 1, memory: 1Gi}}.
            image_pull_secret: the name of a Secret for pulling images. Its content is --docker_config_file or
                --docker_config.
            docker_config_file: a file with the content of --image_pull_secret, in the format that `docker login`
                writes.
            docker_config: the content of --image_pull_secret, instead of the file --docker_config_file.
            service_account: the name of a service account to create, which may use the Secret for pulling images.
            may_run_cells: allow the service account to run the cells of a matrix in the namespace. An account that may
                create Jobs can read every Secret of the namespace.
            cells_need: additional permissions of the service account: `hosts` for cells with several hosts, `slices`
                for cells with several TPU slices, `leases` for taking leases in the namespace.
            network_policy: with `isolated`, pods of other namespaces cannot connect to the pods of this namespace.
            keep: do not delete the namespace at the end of the run that creates it. A namespace that existed before the
                run is never deleted.
        """
        contents = [content for content in (docker_config, docker_config_file) if content is not None]
        if len(contents) != (1 if image_pull_secret else 0):
            raise ValueError(
                "a Secret for pulling images needs its name, --image_pull_secret, and its content, either as "
                "--docker_config_file or as --docker_config"
            )
        if docker_config_file is not None and not environ.expanded(docker_config_file).is_file():
            raise ValueError(f"--docker_config_file: {docker_config_file} is not a file")
        with closing(Connection(Access(str(kubeconfig) if kubeconfig else None, context))) as cluster:
            # The ledger has the namespace before the namespace exists.
            owned_objects.create_namespace(cluster, session.step().recorder.ledger, namespace, keep=keep)

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
        Delete what Topgallant created in a namespace, or the whole namespace, and wait until the deletion has finished.

        Args:
            namespace: the name of the namespace. A system namespace, such as kube-system, is always refused. Without
                --force, a namespace that Topgallant did not create is refused too.
            run: delete only the objects of the run with this name. --force is needed if this run holds a lease and has
                unfinished Jobs in the namespace, or without --run, if any run has unfinished Jobs there.
            delete_namespace: delete the namespace and all objects in it, including objects of other tools.
            force: also delete in a namespace that Topgallant did not create, and delete Jobs of runs that may still be
                running.
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
        Pull images to the nodes of a cluster, before pods need the images.

        Args:
            images: the images to pull.
            namespace: the namespace for the DaemonSet that pulls the images; the namespace of the context when left
                out.
            node_selector: the labels of the nodes that pull the images; all nodes when left out.
            tolerations: the tolerations of the DaemonSet; tolerations for accelerator taints when left out.
            image_pull_policy: when a node pulls an image. With `Always`, the node asks the registry even if it
                already has the image.
            image_pull_secret: the name of the Secret for pulling the images.
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
        Set the number of nodes of a node pool of GKE (with gcloud) or of a MachineSet of OpenShift.

        The command fails if --replicas is below 0 or above --maximum, if an autoscaler would change the number again,
        or if nodes that run other people's pods would be removed.

        Args:
            kind: `gke` for a node pool of GKE, `openshift` for a MachineSet of OpenShift.
            name: the name of the node pool or of the MachineSet.
            replicas: the new number of nodes, in all zones together.
            maximum: the largest allowed value of --replicas.
            cluster: the name of the cluster in GKE, which --kind=gke needs. The kubeconfig must refer to this cluster.
            location: the region or zone of the cluster in GKE; the default of gcloud when left out.
            project: the Google Cloud project of the cluster in GKE; the default of gcloud when left out.
            namespace: the namespace of the MachineSet.
            timeout: the time limit until the nodes are ready, in seconds.
            force: remove nodes even if they run other people's pods.
        """
        if kind == "gke" and cluster is None:
            raise ValueError(f"--cluster is missing: pass the name of the GKE cluster with the node pool {name}")
        for flag, value in {"name": name, "cluster": cluster}.items():
            if value is not None and not is_name(value):  # gcloud would take a leading `-` for a flag
                raise ValueError(f"--{flag}={value!r}: use only lower-case letters, digits, `.` and `-`")
        if kind == "gke" and shutil.which("gcloud") is None:
            raise ValueError("--kind=gke needs the program gcloud, which is not installed on this machine")

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
        Apply manifests to a cluster (server-side apply, with the field manager `topgallant`).

        Args:
            manifests: a file of YAML or JSON, or a directory of such files, which are applied in the order of their
                names.
            namespace: the namespace for objects whose manifest does not name one; the namespace of the context when
                left out.
            wait: wait until the applied Deployments, DaemonSets, StatefulSets, Jobs and Pods are ready.
            timeout: how long to wait until the objects are ready, in seconds.
            force_conflicts: take over the fields that another field manager has set.
        """
        from toolbox.features.kubernetes.library import cluster_objects  # imports Ansible, which is slow

        try:
            list(cluster_objects.read(environ.expanded(manifests)))
        except ConfigurationError as error:
            raise ValueError(f"--manifests: {error}") from None

    @role
    def deploy_server(  # the parameters are flags of a command
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
        Run a server as a Deployment with a Service, and wait until it is ready.

        Args:
            name: the name of the Deployment and of the Service.
            image: the image of the server.
            port: the port on which the server listens.
            replicas: the number of pods that run the server.
            readiness: when a pod counts as ready: with a path such as /health, when HTTP requests for this path
                succeed; with `tcp`, when the port accepts connections; with `none`, when the pod runs.
            patch: changes to merge into the manifest of the Deployment, as in {spec: {minReadySeconds: 10}}. A list in
                the patch replaces the list at the same place in the manifest.
            timeout: the time limit until all pods are ready, in seconds.
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
        Save the logs of a server that `cluster deploy_server` has deployed, remove the server, and wait until its
        objects are gone.

        Args:
            name: the name of the Deployment and of the Service. Missing objects are not an error.
        """

    def take_lease(
        self,
        purpose: str,
        *,
        ttl: WholeSeconds = 14400,
        wait: SecondsOrZero = 0,
        force: bool = False,
        lease: LeaseFlags,
    ) -> str:
        """
        Take the lease of a shared cluster as `user@host`. Runs wait until you release the lease, or until it expires.

        The lease expires after --ttl seconds. To extend the lease, take it again at any time.

        Args:
            purpose: why you take the lease. Users who wait for the lease see this text.
            ttl: how long the lease lasts, in seconds.
            wait: how long to wait if another user holds the lease, in seconds.
            force: take the lease away from its holder, and record this in the lease. If a run holds the lease, the run
                ends.
        """
        with lease.opened() as lock:
            return personal_leases.take(lock, purpose, ttl=ttl, wait=wait, force=force)

    def release_lease(
        self,
        *,
        force: bool = False,
        lease: LeaseFlags,
    ) -> str:
        """
        Release the lease that `cluster take_lease` has taken.

        Args:
            force: release the lease even if another user holds it, and record this in the lease. If a run holds the
                lease, the run ends.
        """
        with lease.opened() as lock:
            return personal_leases.release(lock, force=force)

    def show_lease(
        self,
        *,
        lease: LeaseFlags,
        format: Format[Literal["text", "json"]] = "text",  # noqa: A002  # the words of the command line
    ) -> str:
        """Show who holds the lease of a shared cluster, for which purpose, and when the lease expires."""
        with lease.opened() as lock:
            return personal_leases.show(lock, as_json=format == "json")
