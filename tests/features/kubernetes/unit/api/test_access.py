"""The official client reads the address and the credentials of a cluster from kubeconfigs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from toolbox.features.kubernetes.api import access
from toolbox.features.kubernetes.api.access import Credentials
from toolbox.ground.model.clusters import Access
from toolbox.ground.model.errors import ConfigurationError


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the kubeconfig and the variables of the user who runs the tests."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)


def kubeconfig(file: Path, *names: str, current: str | None = None, namespace: str | None = None) -> str:
    """Write a kubeconfig with a context for each name."""
    context = {"namespace": namespace} if namespace else {}
    content: dict[str, Any] = {
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}"}} for name in names],
        "users": [{"name": name, "user": {"token": f"token-of-{name}"}} for name in names],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, **context}} for name in names],
    }
    if current is not None:
        content["current-context"] = current
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(content))
    return str(file)


def host(**fields: str) -> str:
    return str(Credentials.load(Access(**fields)).configuration.host)


def test_the_requested_context_precedes_the_current_context(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "one", "a", "b", current="a")
    assert (host(kubeconfig=file), host(kubeconfig=file, context="b")) == ("https://a", "https://b")


def test_a_file_without_a_current_context_needs_a_requested_context(tmp_path: Path) -> None:
    assert host(kubeconfig=kubeconfig(tmp_path / "one", "a", "b"), context="b") == "https://b"


def test_the_kubeconfig_is_that_of_the_access_of_the_environment_or_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeconfig(tmp_path / ".kube" / "config", "usual", current="usual")
    assert host() == "https://usual"
    monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path / "two", "env", current="env"))
    assert host() == "https://env"
    kubeconfig(tmp_path / "three", "asked", current="asked")
    assert host(kubeconfig="~/three") == "https://asked"


def test_the_first_of_several_files_sets_the_current_context(tmp_path: Path) -> None:
    files = [kubeconfig(tmp_path / name, name, current=name) for name in ("a", "b")]
    both = ":".join([*files, str(tmp_path / "missing")])
    assert (host(kubeconfig=both), host(kubeconfig=both, context="b")) == ("https://a", "https://b")


def test_the_namespace_is_that_of_the_access_of_the_context_or_the_default(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "one", "a", current="a", namespace="team")
    assert Credentials.load(Access(file)).namespace == "team"
    assert Credentials.load(Access(file, namespace="mine")).namespace == "mine"
    assert Credentials.load(Access(kubeconfig(tmp_path / "two", "a", current="a"))).namespace == "default"


def test_the_error_without_a_kubeconfig_says_how_to_name_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Credentials.load(Access())
    assert str(caught.value) == (
        f"there is no kubeconfig {tmp_path}/.kube/config: set `kubeconfig`, or the environment variable KUBECONFIG"
    )


def test_an_unknown_context_is_refused_with_the_most_similar_name(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "one", "production", "staging", current="staging")
    with pytest.raises(ConfigurationError, match=f"{file} has no context `producton`: did you mean production"):
        host(kubeconfig=file, context="producton")


@pytest.mark.parametrize("content", ["", "[1, 2]", "{", "clusters: []\n", "\0"])
def test_an_invalid_kubeconfig_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "broken").write_text(content)
    with pytest.raises(
        ConfigurationError,
        match=f"^{tmp_path}/broken( does not describe how to reach a cluster: |: there is no current context: )",
    ):
        host(kubeconfig=str(tmp_path / "broken"))


def test_a_renewed_token_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "_RELOAD_SECONDS", 0)
    file = kubeconfig(tmp_path / "one", "a", current="a")
    found = Credentials.load(Access(file))
    Path(file).write_text(Path(file).read_text().replace("token-of-a", "renewed"))
    found.reload()
    assert list(found.configuration.api_key.values()) == ["Bearer renewed"]


@pytest.mark.parametrize("content", [None, "", "clusters: [{name: a, clu"])
def test_an_incomplete_file_leaves_the_old_credentials_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    monkeypatch.setattr(access, "_RELOAD_SECONDS", 0)
    file = Path(kubeconfig(tmp_path / "one", "a", current="a"))
    found, whole = Credentials.load(Access(str(file))), file.read_text()
    file.unlink() if content is None else file.write_text(content)
    found.reload()
    assert (found.configuration.host, *found.configuration.api_key.values()) == ("https://a", "Bearer token-of-a")
    file.write_text(whole.replace("token-of-a", "renewed"))
    found.reload()
    assert list(found.configuration.api_key.values()) == ["Bearer renewed"]


def test_a_pod_uses_its_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in (("token", "secret"), ("ca.crt", "certificate"), ("namespace", "team\n")):
        (tmp_path / name).write_text(content)
    of_client = "kubernetes.config.incluster_config"
    monkeypatch.setattr(f"{of_client}.SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(f"{of_client}.SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setattr(access, "_IN_CLUSTER", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    found = Credentials.load(Access())
    assert (found.configuration.host, found.namespace) == ("https://10.0.0.1:443", "team")


def test_a_pod_without_a_token_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubernetes.config.incluster_config.SERVICE_TOKEN_FILENAME", str(tmp_path / "none"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(ConfigurationError, match=r"serviceaccount does not describe .*: Service token file"):
        host()
