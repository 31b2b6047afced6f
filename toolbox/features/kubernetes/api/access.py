"""Loads the address of a cluster and the credentials for it, from a kubeconfig or the service account of this pod.

The official client reads both, and supports exec plugins and token files. When the server rejects the credentials, they
are read again, because a token may have been renewed in its file.
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import yaml

from toolbox.features.kubernetes.api import proxies
from toolbox.features.kubernetes.api.proxies import Proxy
from toolbox.features.kubernetes.extra import EXTRA
from toolbox.ground.model.clusters import Access
from toolbox.ground.model.errors import ConfigurationError, UsageError
from toolbox.ground.model.nearest import did_you_mean
from toolbox.ground.system import environ, extras, modules

if TYPE_CHECKING:
    from kubernetes.client import Configuration
    from urllib3 import PoolManager

_IN_CLUSTER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_POOL: Final = 256  # the number of connections to keep open; each log that is followed uses one connection
_RELOAD_SECONDS: Final = 1.0
_DEFAULT: Final = "default"


@dataclass(slots=True)
class Credentials:
    """The address of a cluster and the credentials for it, which can be reloaded.

    Args:
        configuration: the configuration of the official client. A reload changes this object.
        namespace: the namespace for requests that don't name one.
        source: the absolute path of the kubeconfig and the name of the context that were read. With this source,
            another process reaches the same cluster, even if `$KUBECONFIG` or the current context has changed.
        proxy: the proxy for the requests: that of the kubeconfig, or else that of the environment.
    """

    access: Access
    configuration: Configuration
    namespace: str
    source: Access = field(default_factory=Access)
    proxy: Proxy | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _loaded: float = 0.0

    @classmethod
    def load(cls, access: Access) -> Self:
        """Read the credentials.

        Raises:
            ConfigurationError: the file or context is missing or unreadable, or the client is not installed.
        """
        extras.require(EXTRA, "a cluster")
        with modules.gc_frozen_imports():
            from kubernetes.client import Configuration
        configuration = Configuration()
        configuration.retries = False  # the client must not repeat requests, because `Cluster.request` does
        configuration.connection_pool_maxsize = _POOL
        credentials = cls(access, configuration, access.namespace or _DEFAULT)
        namespace = credentials._read()
        credentials.namespace = access.namespace or namespace
        return credentials

    def connection_pools(self) -> PoolManager:
        """Return new connection pools, with the client's settings for TLS and proxies."""
        from kubernetes.client.rest import RESTClientObject

        return RESTClientObject(self.configuration).pool_manager

    def reload(self) -> None:
        """Read the credentials again, unless another thread has just done so.

        If the credentials cannot be read, for example while the file is being written, keep the previous credentials.
        """
        with self._lock:
            if time.monotonic() - self._loaded > _RELOAD_SECONDS:
                with contextlib.suppress(ConfigurationError):
                    self._read()

    def _read(self) -> str:
        """Read the credentials, and return the namespace of the context or of this pod."""
        from kubernetes import config

        files = _files(self.access)
        self.configuration.proxy = None  # the client has read the variables in its own way
        try:
            if files is None:
                config.load_incluster_config(client_configuration=self.configuration)
                file = _IN_CLUSTER / "namespace"
                namespace = file.read_text().strip() if file.exists() else _DEFAULT
            else:
                context = _context(files, self.access.context)
                paths = ":".join(str(Path(file).absolute()) for file in files.split(":"))
                self.source = Access(paths, str(context["name"]))
                namespace = str(context["context"].get("namespace") or _DEFAULT)
                config.load_kube_config(
                    files, str(context["name"]), client_configuration=self.configuration, persist_config=False
                )
            self._set_proxy()
        except ConfigurationError:
            raise
        except Exception as error:  # the parsers of the client raise exceptions of many types
            raise ConfigurationError(
                f"{files or _IN_CLUSTER} does not describe how to reach a cluster: {error}"
            ) from error
        # This hook would reload the credentials at every request, but a reload is needed only after a rejection.
        self.configuration.refresh_api_key_hook = None
        self._loaded = time.monotonic()
        return namespace

    def _set_proxy(self) -> None:
        """Use the proxy of the kubeconfig for each address, as kubectl does, or else that of the environment."""
        configuration = self.configuration
        configured = configuration.proxy
        self.proxy = (
            Proxy.parse(str(configured), "`proxy-url` of the kubeconfig")
            if configured
            else proxies.of_environment(str(configuration.host))
        )
        configuration.proxy = self.proxy.client_url if self.proxy else None
        configuration.proxy_headers = self.proxy.headers if self.proxy else None
        configuration.no_proxy = None


def _files(access: Access) -> str | None:
    """Return the paths of the kubeconfig files, separated by colons; None to use the service account of this pod."""
    paths = access.kubeconfig or environ.get("KUBECONFIG")
    if paths is not None:
        return ":".join(str(environ.expanded(part)) for part in paths.split(":") if part)
    is_in_pod = environ.get("KUBERNETES_SERVICE_HOST") is not None
    try:
        default = environ.home() / ".kube" / "config"
    except UsageError:  # in a container, the user may have no home directory
        if is_in_pod:
            return None
        raise
    return None if is_in_pod and not default.exists() else str(default)


def _context(files: str, context_name: str | None) -> dict[str, Any]:
    """Return a context from the kubeconfig files. If several files set a value, the first one counts, as in kubectl."""
    documents = [yaml.safe_load(file.read_text()) or {} for file in map(Path, files.split(":")) if file.exists()]
    if not documents:
        raise ConfigurationError(
            f"there is no kubeconfig {files}: set `kubeconfig`, or the environment variable KUBECONFIG"
        )
    contexts: dict[str, dict[str, Any]] = {}
    for document in documents:
        for context in document.get("contexts") or ():
            contexts.setdefault(str(context["name"]), context)
    current = (document["current-context"] for document in documents if document.get("current-context"))
    name = context_name or next(current, None)
    if name is None:
        raise ConfigurationError(f"{files}: there is no current context: set `context`")
    if name not in contexts:
        raise ConfigurationError(f"{files} has no context `{name}`: {did_you_mean(name, contexts, label='contexts')}")
    return contexts[name]
