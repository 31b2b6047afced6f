"""Where a cluster is, and who we are there: the user's own kubeconfig, or the service account of the pod we run in.

The official client reads it, with its exec plugins and token files. It is read again when the server refuses what it
said: a token may have been renewed in the file.
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import yaml

from toolbox.model.clusters import Access
from toolbox.model.errors import ConfigurationError, UsageError
from toolbox.model.nearest import did_you_mean
from toolbox.system import environ, extras, modules

if TYPE_CHECKING:
    from kubernetes.client import Configuration

_IN_CLUSTER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_POOL: Final = 256  # connections that are kept: a follower of a log has one each
_RELOAD_SECONDS: Final = 1.0
_DEFAULT: Final = "default"


@dataclass(slots=True)
class Credentials:
    """What the client was told of a cluster, and how to read that again.

    Args:
        configuration: of the official client, changed in place when it is read again.
        namespace: where things go that name none.
    """

    access: Access
    configuration: Configuration
    namespace: str
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _loaded: float = 0.0

    @classmethod
    def load(cls, access: Access) -> Self:
        """Read them.

        Raises:
            ConfigurationError: there is no such file or context, it cannot be read, or the client is not installed.
        """
        extras.require("kubernetes", "a cluster")
        with modules.for_good():
            from kubernetes.client import Configuration
        configuration = Configuration()
        configuration.retries = False  # ours know which request may be repeated
        configuration.connection_pool_maxsize = _POOL
        found = cls(access, configuration, access.namespace or _DEFAULT)
        found._read()
        found.namespace = access.namespace or found._own_namespace()
        return found

    def reload(self) -> None:
        """Read them again, unless that has just been done by another thread.

        Where they cannot be read, as while somebody writes the file, what was known holds.
        """
        with self._lock:
            if time.monotonic() - self._loaded > _RELOAD_SECONDS:
                with contextlib.suppress(ConfigurationError):
                    self._read()

    def _read(self) -> None:
        from kubernetes import config

        files = _files(self.access)
        try:
            if files is None:
                config.load_incluster_config(client_configuration=self.configuration)
            else:
                context = str(_context(files, self.access.context)["name"])
                config.load_kube_config(files, context, client_configuration=self.configuration, persist_config=False)
        except ConfigurationError:
            raise
        except Exception as error:  # the client raises whatever its parsers do
            raise ConfigurationError(
                f"{files or _IN_CLUSTER}: it does not say how to reach a cluster: {error}"
            ) from error
        # With every request it would be told again what it knows; what has expired is read again when it is refused.
        self.configuration.refresh_api_key_hook = None
        self._loaded = time.monotonic()

    def _own_namespace(self) -> str:
        files = _files(self.access)
        if files is None:
            file = _IN_CLUSTER / "namespace"
            return file.read_text().strip() if file.exists() else _DEFAULT
        chosen = _context(files, self.access.context)
        return str(chosen["context"].get("namespace") or _DEFAULT)


def _files(access: Access) -> str | None:
    """Return the kubeconfig, or several with a colon between them; None where this is a pod of the cluster."""
    named = access.kubeconfig or environ.get("KUBECONFIG")
    if named is not None:
        return ":".join(str(environ.expanded(part)) for part in named.split(":") if part)
    is_in_pod = environ.get("KUBERNETES_SERVICE_HOST") is not None
    try:
        usual = environ.home() / ".kube" / "config"
    except UsageError:  # a container whose user has no home directory
        if is_in_pod:
            return None
        raise
    return None if is_in_pod and not usual.exists() else str(usual)


def _context(files: str, wanted: str | None) -> dict[str, Any]:
    """Return a context of a kubeconfig. Of several files the first that says something holds, as for kubectl."""
    found = [yaml.safe_load(file.read_text()) or {} for file in map(Path, files.split(":")) if file.exists()]
    if not found:
        raise ConfigurationError(
            f"there is no kubeconfig {files}: name one as `kubeconfig`, or in the environment variable KUBECONFIG"
        )
    contexts: dict[str, dict[str, Any]] = {}
    for content in found:
        for context in content.get("contexts") or ():
            contexts.setdefault(str(context["name"]), context)
    name = wanted or next((content["current-context"] for content in found if content.get("current-context")), None)
    if name is None:
        raise ConfigurationError(
            f"{files}: it does not say how to reach a cluster: no context is current: name one as `context`"
        )
    if name not in contexts:
        raise ConfigurationError(f"{files}: no context `{name}`: {did_you_mean(name, contexts, what='contexts')}")
    return contexts[name]
