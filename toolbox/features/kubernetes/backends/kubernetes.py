"""A Kubernetes cluster: each attempt is a Job, and our agent runs the workload in its pod.

The Job and its pods outlive the orchestrator. Two watches report the status of all cells of a run. The objects of a run
carry its label, and are owned by one object: see `toolbox.features.kubernetes.pods.run_resources`.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field, ValidatorFunctionWrapHandler, WrapValidator, field_validator

from toolbox.features.kubernetes import owned_objects
from toolbox.features.kubernetes.api import permissions
from toolbox.features.kubernetes.api.connection import ApiError, Cluster, Unavailable
from toolbox.features.kubernetes.api.objects import JOB, JOB_SET, SERVICE, Kind, Objects
from toolbox.features.kubernetes.api.permissions import Permission
from toolbox.features.kubernetes.pods import description, fetching, manifests, pod_results
from toolbox.features.kubernetes.pods.attempt_clock import Clock
from toolbox.features.kubernetes.pods.description import Pod
from toolbox.features.kubernetes.pods.fetching import Selection
from toolbox.features.kubernetes.pods.manifests import JobRequest
from toolbox.features.kubernetes.pods.pod_attempts import PodAttempt
from toolbox.features.kubernetes.pods.pod_state import ATTEMPT_LABEL
from toolbox.features.kubernetes.pods.run_resources import RunResources
from toolbox.features.kubernetes.pods.tracker import Tracker
from toolbox.ground.extensions.protocols import Backend
from toolbox.ground.model.clusters import Access
from toolbox.ground.model.errors import (
    Cancelled,
    ConfigurationError,
    InfrastructureError,
    StepError,
    SubmissionUnknown,
    ToolboxError,
    outcome_of,
)
from toolbox.ground.model.nearest import did_you_mean
from toolbox.ground.model.resources import OpenResource
from toolbox.ground.model.secrets import Secret
from toolbox.ground.model.verdicts import Cause
from toolbox.ground.model.workloads import AttemptStatus, EndedBy, Handle, TargetContext, Workload
from toolbox.ground.system import filesystem
from toolbox.records.runs.layout import AttemptDirectory
from toolbox.targets import staging

log = logging.getLogger(__name__)

MANIFEST: Final = "topgallant-job.json"
_CELL_LABEL: Final = "topgallant.dev/cell"
_SLACK_SECONDS: Final = 60.0  # the time to pull an image, and for a kubelet to notice the deadline
_LONGEST_LABEL: Final = 63
_OF_JOBS: Final = ("create", "get", "list", "watch", "delete")
# The permissions that cells need in their namespace: docs/kubernetes.md has them as a Role.
REQUIRED_PERMISSIONS: Final[tuple[Permission, ...]] = (
    *(Permission(verb, "jobs", "batch") for verb in _OF_JOBS),
    *(Permission(verb, "pods") for verb in ("list", "watch")),
    Permission("get", "pods/log"),
    *(Permission(verb, "pods/exec") for verb in ("get", "create")),  # which verb is needed depends on the server
    *(Permission(verb, "configmaps") for verb in ("create", "get", "delete")),
    Permission("create", "secrets"),
    Permission("list", "events"),
)
SLICE_PERMISSIONS: Final = tuple(Permission(verb, "jobsets", "jobset.x-k8s.io") for verb in _OF_JOBS)
HOST_PERMISSIONS: Final = (Permission("create", "services"), Permission("delete", "services"))
_VERIFY_SECONDS: Final = 15.0
_GUARDED: Final = ("secrets", "image_pull_secrets", "service_account", "volumes", "python", "patch")


def _or_reference(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    return value if isinstance(value, str) and value.startswith("@") else validate(value)


class WorkloadFields(BaseModel):
    """The fields of a workload that only this backend reads.

    Args:
        pod: the settings of the workload's pods, which override those of the target; before the cells are known also a
            reference to them.
    """

    pod: Annotated[dict[str, Any], WrapValidator(_or_reference)] = {}


class Target(BaseModel):
    """The cluster, and the defaults for its pods.

    Args:
        cluster: a name in the block `clusters`; with it, `kubeconfig` and `context` are not used.
        kubeconfig: the file that describes the access; `$KUBECONFIG`, or `~/.kube/config`, when left out.
        context: the context in that file; the current one when left out.
        namespace: the namespace of the Jobs; that of the context when left out.
        pod: the settings for the pods of all cells, which a cell may override.
    """

    model_config = ConfigDict(extra="forbid")
    keeps_attempts: ClassVar[bool] = True
    workload_fields: ClassVar[type[BaseModel]] = WorkloadFields
    guarded_fields: ClassVar[Sequence[str]] = tuple(f"pod.{field}" for field in _GUARDED)

    cluster: str | None = None
    kubeconfig: str | None = Field(default=None, min_length=1)
    context: str | None = Field(default=None, min_length=1)
    namespace: str | None = Field(default=None, min_length=1)
    pod: dict[str, Any] = {}

    @field_validator("pod")
    @classmethod
    def _describes_a_pod(cls, pod: dict[str, Any]) -> dict[str, Any]:
        description.parse(pod, {})
        return pod

    def open(self, context: TargetContext) -> Backend:
        """Return the backend of this cluster.

        Raises:
            ConfigurationError: no configuration describes how to reach the cluster.
        """
        return _Kubernetes(context, self, Cluster(self.access(context.clusters), label=context.name))

    def accept(self, workload: Workload) -> None:
        """Raise ValueError if a workload cannot run here."""
        if self.pod_of(workload).image is None:
            raise ValueError("its pod has no `image`: set one in the `pod` of the target or of the workload")

    def verify(self, name: str, clusters: Mapping[str, Access | None], workloads: Iterable[Workload]) -> None:
        """Check that cells can run, before anything is started.

        Raises:
            ConfigurationError: a permission is missing, or there is no such cluster or namespace.
            InfrastructureError: the cluster does not answer.
        """
        if self.cluster is not None and clusters.get(self.cluster, Access()) is None:
            return  # the cluster is chosen later
        cluster = Cluster(self.access(clusters), label=f"the target `{name}`")
        pods = list(map(self.pod_of, workloads)) or [description.parse(self.pod, {})]
        required = REQUIRED_PERMISSIONS
        if any(pod.slices > 1 for pod in pods):
            required += SLICE_PERMISSIONS
        if any(pod.needs_service for pod in pods):
            required += HOST_PERMISSIONS
        try:
            lacking = permissions.missing(cluster, required, timeout=_VERIFY_SECONDS)
            if not lacking:
                permissions.try_namespace(cluster, timeout=_VERIFY_SECONDS)
        except ApiError as error:
            raise ConfigurationError(str(error)) from None
        except StepError as error:
            raise InfrastructureError(str(error)) from None
        finally:
            cluster.close()
        if lacking:
            raise ConfigurationError(
                f"{cluster.label}: in the namespace {cluster.namespace} the account may not "
                f"{', '.join(map(str, lacking))}: docs/kubernetes.md has a Role that is enough"
            )

    def resources(self, name: str, clusters: Mapping[str, Access | None]) -> Iterable[OpenResource]:
        """Return the owner objects and namespaces that Topgallant created in the cluster, of any run."""
        if self.cluster is not None and clusters.get(self.cluster, Access()) is None:
            return []  # the cluster is from a pool, or is created by a run
        with closing(Cluster(self.access(clusters), label=f"the target `{name}`")) as cluster:
            return list(owned_objects.find(cluster))

    def pod_of(self, workload: Workload) -> Pod:
        """Return the description of the pods of a workload.

        Raises:
            ValueError: a field is wrong; the message names all wrong fields.
        """
        return description.parse(self.pod, workload.backend_fields.get("pod", {}))

    def access(self, clusters: Mapping[str, Access | None]) -> Access:
        """Return how to reach the cluster.

        Raises:
            ConfigurationError: the run has no cluster of that name.
        """
        if self.cluster is None:
            return Access(self.kubeconfig, self.context, self.namespace)
        found = clusters.get(self.cluster)
        if found is None:
            hint = did_you_mean(self.cluster, clusters, label="clusters")
            raise ConfigurationError(f"no cluster `{self.cluster}` in the block `clusters`: {hint}")
        return dataclasses.replace(found, **({"namespace": self.namespace} if self.namespace else {}))


class _Kubernetes:
    """Executes workloads as Jobs of one namespace."""

    def __init__(self, context: TargetContext, target: Target, cluster: Cluster) -> None:
        self._context = context
        self._target = target
        self._cluster = cluster
        self._objects = Objects(cluster)
        self._run_resources = RunResources(cluster, context.run, context.ledger)
        selector = ",".join(f"{key}={value}" for key, value in self._run_resources.labels.items())
        self._tracker = Tracker(cluster, selector, self._notify, self._remove)
        self._clock = Clock(cluster, self._tracker, self._events)

    def submit(self, workload: Workload, name: str, directory: Path) -> Handle:
        """See `Backend`. It waits until the Job is created, not until its pod starts: the cluster has its own queue."""
        attempt = self._watched_attempt(workload, name, directory)
        if not self._tracker.has_job(attempt.job):
            self._create(self._request(workload, attempt), attempt)
        self._tracker.add(attempt)
        return attempt.handle

    def poll(self, handles: Iterable[Handle]) -> Mapping[Handle, AttemptStatus]:
        """See `Backend`."""
        return {handle: self._attempt(handle.name).status for handle in handles}

    def collect(self, handle: Handle, workload: Workload) -> None:
        """See `Backend`."""
        attempt = self._attempt(handle.name)
        outcome = attempt.status.outcome
        for pod in self._tracker.pods_of(attempt):
            report, logs = pod.report, pod_results.incomplete_logs(attempt, pod)
            # If the agent was killed, only a look at the files can show what the workload left.
            if pod.holds_files and (logs or report is None or report.get("left")):
                place = filesystem.make_directory(attempt.place(pod.index).path)
                selection = Selection(tuple(workload.collect), logs, place, self._context.limits)
                fetching.fetch(self._cluster, pod.name, attempt.pod.interpreter, attempt.there, selection, attempt.wait)
                logs = pod_results.incomplete_logs(attempt, pod)
            if logs and report is not None and not (outcome and outcome.log_fault):
                raise StepError(f"{self._context.name}: the logs of {pod.name} are incomplete: {', '.join(logs)}")

    def cancel(self, handle: Handle) -> None:
        """See `Backend`."""
        self._tracker.cancel(self._attempt(handle.name))

    def release(self, handle: Handle) -> None:
        """See `Backend`."""
        job = self._job(handle.name)
        attempt = self._tracker.book.get(job)
        if attempt is not None and not attempt.status.state.is_over:
            raise StepError(f"{self._context.name}: {job} is in use: its workload is still running")
        if attempt is None and not self._tracker.has_job(job):
            self._delete_all(job)
            return
        self._delete(job)
        if attempt is not None:
            if attempt.pod.needs_service:
                self._objects.delete(SERVICE, self._cluster.namespace, job)
            self._tracker.forget(attempt)

    def find(self, workload: Workload, name: str, directory: Path) -> Handle | None:
        """See `Backend`."""
        attempt = self._watched_attempt(workload, name, directory)
        namespace = self._cluster.namespace
        if self._objects.read(attempt.pod.kind, namespace, attempt.job, timeout=attempt.wait) is None:
            return None
        self._tracker.add(attempt)
        return attempt.handle

    def teardown_run(self) -> None:
        """See `Backend`. Deletes the owner object, and with it the objects that it owns."""
        self._run_resources.teardown_run()

    def close(self) -> None:
        """See `Backend`."""
        self._clock.close()
        self._tracker.close()
        self._cluster.close()

    def _job(self, attempt: str) -> str:
        return manifests.job_name(self._context.run, attempt)

    def _attempt(self, name: str) -> PodAttempt:
        return self._tracker.book[self._job(name)]

    def _watched_attempt(self, workload: Workload, name: str, directory: Path) -> PodAttempt:
        """Return an attempt, after starting the watches that report its objects."""
        try:
            pod = self._target.pod_of(workload)
        except ValueError as error:
            raise StepError(str(error), cause=Cause.CONFIGURATION) from None
        wait, there = workload.timeouts.wait, f"{description.ROOT}/{name}"
        if self._tracker.start(wait):
            self._clock.start()
        if pod.slices > 1:
            self._tracker.watch_sets(wait)
        return PodAttempt(Handle(name, directory), self._job(name), there, wait, pod, workload.log_bytes)

    def _request(self, workload: Workload, attempt: PodAttempt) -> JobRequest:
        """Create the objects that a workload needs in the cluster, and return the request for it."""
        times, wait = workload.timeouts, workload.timeouts.wait
        owner = self._run_resources.owner(wait)
        sources = self._run_resources.sources(workload, attempt.directory, wait)
        secret_env = self._run_resources.secret_env(workload.env, wait)
        keeps_files = bool(workload.collect or workload.sample_seconds)
        keeps = attempt.pod.keep_seconds
        deadline = None if times.run is None else wait + times.run + times.grace + keeps + _SLACK_SECONDS
        cell = attempt.name.removeprefix(f"{self._context.run}-")[:_LONGEST_LABEL].strip("-_.")
        return JobRequest(
            name=attempt.job,
            namespace=self._cluster.namespace,
            labels={**self._run_resources.labels, _CELL_LABEL: cell, ATTEMPT_LABEL: attempt.job},
            owner=owner,
            directory=attempt.there,
            command=workload.command,
            env={name: value for name, value in workload.env.items() if not isinstance(value, Secret)},
            secret_env=secret_env,
            limits={
                **staging.limits(workload),
                "secrets": sorted({*secret_env, *attempt.pod.secrets}),
                "collect": list(workload.collect),
                "hold_seconds": 0 if keeps_files else keeps,
            },
            agent=self._run_resources.agent(wait),
            sources=sources,
            keeps_files=keeps_files,
            collect=workload.collect,
            deadline_seconds=deadline,
            grace_seconds=times.grace,
        )

    def _create(self, request: JobRequest, attempt: PodAttempt) -> None:
        """Create the objects of an attempt in the cluster, unless they exist."""
        try:
            manifest = manifests.manifest(request, attempt.pod)
            service = manifests.service(request, attempt.pod)
            document = manifests.document(manifest, service)
        except ValueError as error:
            raise StepError(str(error), cause=Cause.CONFIGURATION) from None
        directory = AttemptDirectory(attempt.directory)
        filesystem.write_bytes(directory.sources / MANIFEST, document)
        for file in directory.logs().values():
            file.unlink(missing_ok=True)  # a log of an earlier attempt with this name
        began = time.monotonic()
        try:
            if service:
                self._make(SERVICE, service, attempt.wait)
            self._make(attempt.pod.kind, manifest, attempt.wait)
        except (ToolboxError, Cancelled) as error:
            if isinstance(error, ApiError | Unavailable) and not error.may_be_done:
                raise
            verdict, cause = outcome_of(error)
            waited = time.monotonic() - began
            raise SubmissionUnknown(
                f"the workload may have been started ({waited:.0f} s): {error}", verdict=verdict, cause=cause
            ) from error

    def _make(self, kind: Kind, body: dict[str, Any], timeout: float) -> None:
        try:
            made = self._objects.create(kind, self._cluster.namespace, body, timeout=timeout)
            if "completionMode" in body["spec"] and "completionMode" not in made.get("spec", {}):
                name = body["metadata"]["name"]
                log.warning(
                    "%s does not support Indexed Jobs: the pods of %s do not get their index", self._context.name, name
                )
        except ApiError as error:
            if not error.is_there:
                raise

    def _delete(self, job: str) -> None:
        self._objects.delete(self._tracker.kind_of(job), self._cluster.namespace, job)

    def _delete_all(self, job: str) -> None:
        """Remove the objects of an attempt of an earlier session: a Job, perhaps with a Service, or a JobSet."""
        namespace = self._cluster.namespace
        self._objects.delete(JOB, namespace, job)
        for kind in (JOB_SET, SERVICE):
            try:
                self._objects.delete(kind, namespace, job)
            except ApiError as error:
                if error.status != HTTPStatus.FORBIDDEN:
                    raise  # an earlier session with the same permissions cannot have created any

    def _notify(self, name: str) -> None:
        outcome = self._attempt(name).status.outcome
        if outcome is not None and outcome.ended_by is EndedBy.EVICTED:
            self._run_resources.forget()
        self._context.notify(name)

    def _remove(self, job: str) -> bool:
        """Remove a Job, and return whether that succeeded. Otherwise the release of the attempt removes it."""
        try:
            self._delete(job)
        except StepError as error:
            log.warning("%s: the Job %s is still there: %s", self._context.name, job, error)
            return False
        return True

    def _events(self, name: str) -> list[str]:
        events = self._objects.events(self._cluster.namespace, fields=f"involvedObject.name={name},type=Warning")
        return [str(event.get("message", "")) for event in events]
