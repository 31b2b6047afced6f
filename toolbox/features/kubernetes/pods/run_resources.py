"""Creates the objects that a run needs besides its Jobs: their owner, the agent, and the workloads' sources.

The owner is an empty ConfigMap. All other objects of a run refer to it as their owner, so that
deleting the owner deletes them all (the Kubernetes documentation, "Garbage Collection").
"""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import io
import secrets
import tarfile
import threading
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from toolbox.features.kubernetes import owned_objects
from toolbox.features.kubernetes.api.connection import ApiError, Cluster, Json
from toolbox.features.kubernetes.api.objects import CONFIG_MAP, MANAGED_BY, MANAGER, RUN_LABEL, SECRET, Objects
from toolbox.features.kubernetes.pods.manifests import AGENT, SOURCES_ARCHIVE, job_name
from toolbox.ground import kit
from toolbox.ground.kit import source_code
from toolbox.ground.model.errors import StepError
from toolbox.ground.model.resources import ResourceLedger
from toolbox.ground.model.secrets import Secret
from toolbox.ground.model.verdicts import Cause
from toolbox.ground.model.workloads import Workload
from toolbox.records.runs.layout import AttemptDirectory
from toolbox.targets import agent, staging

_MAX_BYTES: Final = 900_000  # an object may have at most 1 MiB
_AGENT_ARCHIVE: Final = AGENT.rpartition("/")[2]
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)  # the earliest time in a zip file
_MAIN: Final = f"from {agent.__name__}.pod import main\n\nmain()\n"


@dataclass(slots=True)
class _Stored:
    """An object in the cluster. `name` is empty until it exists; `making` is locked while it is made."""

    name: str = ""
    making: threading.Lock = field(default_factory=threading.Lock)


class RunResources:
    """The objects of one run in one namespace, other than its Jobs."""

    def __init__(self, cluster: Cluster, run: str, ledger: ResourceLedger) -> None:
        self._cluster = cluster
        self._ledger = ledger
        self._objects = Objects(cluster)
        self.labels = {MANAGED_BY: MANAGER, RUN_LABEL: run}
        self.name = job_name(run, f"topgallant-{run}")
        self._resource = owned_objects.resource(cluster, CONFIG_MAP, self.name)
        self._lock = threading.Lock()
        self._owner: dict[str, str] = {}
        self._stored: dict[object, _Stored] = {}  # ConfigMaps and Secrets, by their content

    def owner(self, timeout: float) -> Mapping[str, str]:
        """Return the reference to the owner. Create the owner if it is missing.

        Raises:
            StepError: the owner cannot be created.
        """
        with self._lock:
            if not self._owner:
                self._ledger.plan(self._resource)
                found = self._config_map(self.name, {}, timeout)
                self._ledger.mark_created(self._resource)
                uid = str(found["metadata"]["uid"])
                self._owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": self.name, "uid": uid}
            return self._owner

    def agent(self, timeout: float) -> str:
        """Store the agent in a ConfigMap, and return its name. A newer agent gets a ConfigMap of its own.

        Raises:
            StepError: the ConfigMap cannot be created.
        """
        return self._once(_AGENT_ARCHIVE, lambda: self._store(_AGENT_ARCHIVE, agent_program(), timeout))

    def sources(self, workload: Workload, directory: Path, timeout: float) -> str | None:
        """Store a workload's sources in a ConfigMap, and return its name; None if the workload has no sources.

        The directory `directory` gets a copy of the sources.

        Raises:
            StepError: the sources are too large for a ConfigMap.
        """
        with staging.staged(workload, directory) as folder:
            if folder is None:
                return None
            content = _archive(folder)
            if len(content) > _MAX_BYTES:
                raise StepError(
                    f"the files of the workload are {len(content)} bytes after compression, "
                    f"at most {_MAX_BYTES} can be sent: put large files into the image or on a volume (`pod.volumes`)",
                    cause=Cause.CONFIGURATION,
                )
            digest = hashlib.sha256(content).digest()
            name = self._once(digest, lambda: self._store(SOURCES_ARCHIVE, content, timeout))
            with suppress(OSError):  # another thread has put a copy there
                folder.replace(AttemptDirectory(directory).sources)
            return name

    def secret_env(self, env: Mapping[str, str | Secret], timeout: float) -> dict[str, tuple[str, str]]:
        """Store the variables that are secrets in a Secret, and return the name and key of each."""
        found = {name: value.reveal() for name, value in env.items() if isinstance(value, Secret)}
        if not found:
            return {}
        # The name is random, so that it reveals nothing of the content. Each process creates a Secret of its own.
        name = self._once(
            tuple(sorted(found.items())), lambda: self._secret(f"{self.name}-{secrets.token_hex(4)}", found, timeout)
        )
        return {variable: (name, variable) for variable in found}

    def forget(self) -> None:
        """Create all objects again when they are needed: the owner may have been deleted, and with it the others."""
        with self._lock:
            self._owner, self._stored = {}, {}

    def teardown_run(self) -> None:
        """Delete the owner, and with it all remaining objects of the run."""
        self.forget()
        owned_objects.delete(self._cluster, CONFIG_MAP, self.name, self._ledger.owner)
        self._ledger.mark_deleted(self._resource)

    def _store(self, key: str, content: bytes, timeout: float) -> Json:
        """Store content in a ConfigMap, whose name is a hash of the owner and the content.

        If the owner was deleted, Kubernetes soon deletes the ConfigMaps of this owner: those of another owner get other
        names.
        """
        owner = self.owner(timeout)["uid"]
        name = f"{self.name}-{hashlib.sha256(owner.encode() + content).hexdigest()[:12]}"
        return self._config_map(name, {key: content}, timeout)

    def _once(self, key: object, make: Callable[[], Json]) -> str:
        """Return the name of the object for a key, which the first caller makes while further callers wait."""
        with self._lock:
            stored = self._stored.setdefault(key, _Stored())
        with stored.making:
            stored.name = stored.name or str(make()["metadata"]["name"])
            return stored.name

    def _config_map(self, name: str, data: Mapping[str, bytes], timeout: float) -> Json:
        encoded = {key: base64.b64encode(content).decode() for key, content in data.items()}
        body = {**self._meta("ConfigMap", name, timeout), "binaryData": encoded}
        namespace = self._cluster.namespace
        try:
            return self._objects.create(CONFIG_MAP, namespace, body, timeout=timeout)
        except ApiError as error:
            found = self._objects.read(CONFIG_MAP, namespace, name, timeout=timeout) if error.is_there else None
            if found is None:
                raise
            return found

    def _secret(self, name: str, data: Mapping[str, str], timeout: float) -> Json:
        body = {**self._meta("Secret", name, timeout), "stringData": dict(data)}
        try:
            self._objects.create(SECRET, self._cluster.namespace, body, timeout=timeout)
        except ApiError as error:
            if not error.is_there:  # a Secret that exists comes from this request, whose response was lost
                raise
        return body

    def _meta(self, kind: str, name: str, timeout: float) -> Json:
        if name == self.name:
            labels = {**owned_objects.labels(self._ledger.owner, owned_objects.TTL), **self.labels}
            meta: Json = {"name": name, "labels": labels}
        else:
            meta = {"name": name, "labels": self.labels, "ownerReferences": [dict(self.owner(timeout))]}
        return {"apiVersion": "v1", "kind": kind, "metadata": meta}


@functools.cache
def agent_program() -> bytes:
    """Return the agent as a zip file that Python can run."""
    sources = {"__main__": _MAIN, **source_code.read(agent, kit)}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in sorted(sources.items()):
            file = f"{name.replace('.', '/')}{'.py' if text else '/__init__.py'}"
            archive.writestr(zipfile.ZipInfo(file, _EPOCH), text, zipfile.ZIP_DEFLATED)
    return content.getvalue()


def _archive(folder: Path) -> bytes:
    """Return a folder as an archive. The same files always give the same bytes."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for path in sorted(folder.rglob("*")):
            archive.add(path, str(path.relative_to(folder)), recursive=False, filter=_plain)
    return gzip.compress(content.getvalue(), mtime=0)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.mtime = member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
