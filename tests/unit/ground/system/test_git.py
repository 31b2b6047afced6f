"""Git returns the commit of a revision, and gets no option, no other transport and no password by its arguments."""

import os
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from toolbox.ground.model.errors import Cancelled, ConfigurationError, InfrastructureError
from toolbox.ground.model.secrets import Secret
from toolbox.ground.system import cancellation, git


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with a branch `main` and an annotated tag `v1`."""
    directory = tmp_path / "repository"
    for command in (
        ["init", "-q", "-b", "main", str(directory)],
        ["-C", str(directory), "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"],
        ["-C", str(directory), "-c", "user.name=a", "-c", "user.email=a@b", "tag", "-a", "v1", "-m", "v1"],
    ):
        subprocess.run(["git", *command], check=True)
    return directory


def head(repository: Path) -> str:
    command = ["git", "-C", str(repository), "rev-parse", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("revision", ["HEAD", "main", "v1", "refs/heads/main", "refs/tags/v1"])
def test_a_name_is_resolved_to_the_commit(repository: Path, revision: str) -> None:
    assert git.commit_of(str(repository), revision) == head(repository)


@pytest.mark.parametrize("revision", ["main", "v1", "HEAD", "refs/heads/main"])
def test_a_name_of_a_remote_repository_is_resolved_to_the_commit(
    repository: Path, monkeypatch: pytest.MonkeyPatch, revision: str
) -> None:
    for name, value in {"KEY_0": f"url.file://{repository}.insteadOf", "VALUE_0": "https://a.invalid/b"}.items():
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    assert git.commit_of("https://a.invalid/b", revision) == head(repository)
    with pytest.raises(ConfigurationError, match="has no branch and no tag nope"):
        git.commit_of("https://a.invalid/b", "nope")


def test_a_name_of_a_branch_and_a_tag_is_ambiguous(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["git", "-C", str(repository), "branch", "v1"], check=True)
    for name, value in {"KEY_0": f"url.file://{repository}.insteadOf", "VALUE_0": "https://a.invalid/b"}.items():
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    with pytest.raises(ConfigurationError, match="write refs/heads/v1 or refs/tags/v1"):
        git.commit_of("https://a.invalid/b", "v1")


def test_the_id_of_a_commit_is_not_looked_up() -> None:
    assert git.commit_of("https://nowhere.invalid/x", "a" * 40) == "a" * 40


def test_a_missing_revision_of_a_directory_is_named(repository: Path) -> None:
    with pytest.raises(ConfigurationError, match="has no revision nope"):
        git.commit_of(str(repository), "nope")


@pytest.mark.parametrize(
    "address",
    [
        "--upload-pack=touch /tmp/pwned",
        "ext::sh -c touch% pwned",
        "ext::x",
        "http://plain.example/x",
        "file:///etc",
        "https://user:secret@host/x",
        "https://user@host/x",
        "https:///x",
        "ssh://-oProxyCommand=x/y",
        "-host:path",
        "-oProxyCommand@host:path",
        "relative/path",
        "https://a/b\nc",
        "https://[::1/x",
        "",
    ],
)
def test_a_dangerous_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^the repository must"):
        git.commit_of(address, "main")


@pytest.mark.parametrize("address", ["https://h.example/a/b.git", "ssh://git@h:22/a", "git@h.example:a/b", "/srv/a"])
def test_an_address_of_a_repository_is_accepted(address: str) -> None:
    assert git.repository_fault(address) == ""


@pytest.mark.parametrize(
    "revision", ["-x", "--all", "a..b", "a:b", "+a", "^a", "a b", "a@{1}", "a^", "a~1", "", "x.lock"]
)
def test_a_revision_that_is_not_one_name_is_refused(revision: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^the revision must"):
        git.commit_of("/srv/a", revision)


def test_only_the_host_of_the_repository_gets_the_token_and_not_by_argv() -> None:
    options, variables = git._credentials("https://h.example:8443/a", Secret("hunter2"))
    assert variables == {"TOPGALLANT_GIT_TOKEN": "hunter2"}
    assert "hunter2" not in " ".join(options)
    assert all(option == "-c" or option.startswith("credential.https://h.example:8443.helper=") for option in options)
    assert git._credentials("git@h:a", Secret("hunter2")) == ([], {})


def test_a_server_that_never_answers_is_an_error_of_the_infrastructure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git, "_MAX_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"https://127.0.0.1:{server.getsockname()[1]}/a"
        with pytest.raises(InfrastructureError, match=r"cannot be read: git did not end within 0.5 s"):
            git.commit_of(address, "main")


def test_a_cancellation_is_not_mistaken_for_a_server_that_never_answers() -> None:
    with cancellation.opened() as scope:
        scope.cancel("another task failed")
        with pytest.raises(Cancelled, match="another task failed"):
            git.commit_of("https://a.invalid/b", "main")


def test_endless_output_is_an_error_and_ends_no_other_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on, commit = tmp_path / "begun", tmp_path / "go-on", "1" * 40
    os.mkfifo(begun)
    (tmp_path / "git").write_text(
        f"""#!/bin/sh
        case "$*" in *endless*) exec yes;; esac
        echo begun >{begun}
        until test -e {go_on}; do sleep 0.02; done
        printf '{commit}\\trefs/heads/main\\n'
        """
    )
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(git.commit_of, "https://a.invalid/other", "main")
        assert begun.read_text() == "begun\n"
        try:
            with pytest.raises(InfrastructureError, match="more than 100 lines"):
                git.commit_of("https://a.invalid/endless", "main")
        finally:
            go_on.touch()
        assert other.result(60) == commit


def test_the_variables_of_a_git_hook_do_not_name_another_repository(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "another"))
    assert git.commit_of(str(repository), "main") == (repository / ".git/refs/heads/main").read_text().strip()


def test_the_files_of_a_commit_are_listed(repository: Path) -> None:
    for name in ("a.py", "b/é.py", "c\nd.py", "b/e/f.py"):
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text("x")
    options = ["-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["add", "."], ["commit", "-q", "-m", "files"]):
        subprocess.run(["git", *options, *command], check=True)
    assert git.files_of(repository / "b", head(repository)) == {"a.py", "b/é.py", "b/e/f.py"}


@pytest.mark.parametrize("commit", ["f" * 40, "HEAD", "--help", "", "main"])
def test_an_unknown_commit_has_no_files(repository: Path, commit: str) -> None:
    assert git.files_of(repository, commit) == frozenset()


def test_a_directory_without_a_repository_has_no_files(tmp_path: Path) -> None:
    assert git.files_of(tmp_path, "f" * 40) == frozenset()
