"""A machine over SSH that is unreachable, has an unknown key, sends hostile files, or lacks a program."""

from __future__ import annotations

import io
import os
import shutil
import socket
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.sites import Bench, Orchestrator, Site, wait_for
from tests.servers import openssh
from toolbox.ground.model.errors import StepError
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.model.workloads import EndedBy
from toolbox.targets.backends import ssh

pytestmark = pytest.mark.live

AT_ONCE = 20.0  # seconds; the tests would wait 60 s for a machine


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openssh.Server]:
    """Yield a server that allows one session per connection."""
    with openssh.serving(tmp_path_factory.mktemp("server"), options="MaxSessions 1\n") as running:
        yield running


Open = Callable[..., Bench]


@pytest.fixture
def bench(server: openssh.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Yield a function that opens a target on the server with these fields, and close the targets after the test."""
    monkeypatch.setenv("PATH", server.environment()["PATH"])
    opened: list[Bench] = []

    def open_target(**fields: Any) -> Bench:
        target = ssh.Target.model_validate({"host": openssh.ADDRESS, "port": server.port, **fields})
        site = Site("ssh", target, server.directory / ".cache/topgallant/attempts", server)
        opened.append(Bench(Orchestrator(site, tmp_path / f"orchestrator-{len(opened)}"), tmp_path))
        return opened[-1]

    yield open_target
    for one in opened:
        one.close()
        one.shared.backend.close()


def refusal(bench: Bench, wait: float = 60.0, *, cause: Cause = Cause.INFRASTRUCTURE) -> tuple[str, float]:
    """Return the error with which a workload cannot be started, and the seconds until that error."""
    began = time.monotonic()
    with pytest.raises(StepError) as caught:
        bench.start("true", wait=wait)
    assert (caught.value.verdict, caught.value.cause) == (Verdict.ERROR, cause)
    return str(caught.value), time.monotonic() - began


def test_a_machine_that_does_not_answer_is_waited_for(bench: Open) -> None:
    with socket.socket() as unused:
        unused.bind((openssh.ADDRESS, 0))  # bound, but no server listens
        port = unused.getsockname()[1]
        message, seconds = refusal(bench(port=port), wait=2.0)
    answer = f"ssh: connect to host {openssh.ADDRESS} port {port}: Connection refused"
    assert message == f"there: the host cannot be reached for 2 s: {answer}"
    assert 2.0 <= seconds < AT_ONCE


def test_a_machine_that_comes_up_late_is_used(bench: Open, server: openssh.Server) -> None:
    server.stop()
    target = bench()
    with ThreadPoolExecutor() as threads:
        try:
            attempt = threads.submit(target.start, "true")
            time.sleep(0.5)
            assert not attempt.done()
        finally:
            server.start()
        assert attempt.result().wait().exit_code == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"python": "no-such-python"}, "exec: no-such-python: not found"),
        ({"python": "/no/such/python"}, "exec: /no/such/python: not found"),
        ({"python": "/etc"}, "exec: /etc: Permission denied"),
    ],
)
def test_a_wrong_interpreter_is_reported_at_once(bench: Open, fields: dict[str, str], message: str) -> None:
    error, seconds = refusal(bench(**fields), cause=Cause.CONFIGURATION)
    assert error.startswith("there: the agent cannot start: ")
    assert message in error
    assert seconds < AT_ONCE


def test_a_refused_login_is_reported_at_once(bench: Open) -> None:
    error, seconds = refusal(bench(user="nobody-of-that-name"))
    assert error.startswith("there: the host cannot be reached: ")
    assert "Permission denied (publickey)" in error
    assert seconds < AT_ONCE


@pytest.mark.parametrize("known", ["another key", "no key"])
def test_a_machine_whose_key_is_not_the_known_one_is_refused_at_once(
    bench: Open, server: openssh.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: str
) -> None:
    known_hosts = tmp_path / "known_hosts"
    known_hosts.write_text(server.entry(openssh.make_key(tmp_path / "other")) if known == "another key" else "")
    monkeypatch.setenv("PATH", server.environment(known_hosts)["PATH"])
    error, seconds = refusal(bench())
    assert "Host key verification failed" in error
    assert seconds < AT_ONCE


def test_a_missing_ssh_program_is_reported(bench: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    target = bench()
    monkeypatch.setenv("PATH", "/nowhere")
    error, seconds = refusal(target)
    assert "No such file or directory: 'ssh'" in error
    assert seconds < AT_ONCE


def test_a_directory_that_cannot_be_made_is_named(bench: Open) -> None:
    error, _ = refusal(bench(directory="/proc/nowhere"))
    assert error.startswith("there: No such file or directory: /proc/nowhere")


def interpreter(version: str) -> str | None:
    """Return a Python of a version, from the search path or from pyenv."""
    found = shutil.which(f"python{version}")
    home = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [*([found] if found else []), *sorted(map(str, home.glob(f"versions/{version}.*/bin/python")))]
    works = (c for c in candidates if subprocess.run([c, "-c", ""], capture_output=True, check=False).returncode == 0)
    return next(works, None)


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10", "3.12", "3.13", "3.14"])
def test_the_agent_runs_on_every_python_from_3_8_on(bench: Open, version: str) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"Python {version} is not installed")
    target = bench(python=python)
    written = {"lines": "".join(f"{n}\n" for n in range(1000))}
    script = (
        'cat "$TOPGALLANT_SRC/lines"; mkdir a; cp "$TOPGALLANT_SRC/lines" "a/été b"; (trap "" TERM; sleep 60) & exit 3'
    )
    attempt, outcome = target.run(
        "sh", "-c", script, text_files=written, collect=("**/*b",), grace=0.2, sample_seconds=0.1
    )
    assert (outcome.exit_code, outcome.leftovers >= 1) == (3, True)
    assert attempt.text() == attempt.text("files/a/été b") == written["lines"]
    running = target.start("sh", "-c", "echo up; exec sleep 600", name="running")
    running.printed("up")
    (connection,) = target.shared.connections()
    connection.kill()
    wait_for(target.shared.connections, "another connection")
    assert running.cancel().ended_by is EndedBy.CANCELLED
    target.shared.backend.release(running.handle)
    assert not running.there.exists()


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.7"])
def test_a_python_that_is_too_old_is_refused_at_once(bench: Open, version: str) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"Python {version} is not installed")
    error, seconds = refusal(bench(python=python), cause=Cause.CONFIGURATION)
    assert f"the agent needs Python 3.8 or later, and this is {version}" in error
    assert seconds < AT_ONCE


def test_a_login_shell_may_print_a_greeting(bench: Open, server: openssh.Server) -> None:
    """The start file of a shell may print a greeting, on standard output and on standard error."""
    shell = server.directory / ".bashrc"
    shell.write_text("echo 'Welcome!'; echo '{\"event\": 1}'; echo 5; printf 'no end of line'; echo 'Behave.' >&2\n")
    try:
        target = bench()
        script = 'cat "$TOPGALLANT_SRC/a" > b'
        attempt, outcome = target.run("sh", "-c", script, text_files={"a": "sent"})
    finally:
        shell.unlink()
    assert outcome.exit_code == 0
    assert attempt.text("files/b") == "sent"


def test_files_use_a_second_connection_if_one_allows_one_session(bench: Open) -> None:
    target = bench()
    scripts = ['cat "$TOPGALLANT_SRC/a" > b'] * 4
    attempts = [
        target.start("sh", "-c", script, name=f"cell-{n}", text_files={"a": str(n)}) for n, script in enumerate(scripts)
    ]
    for number, attempt in enumerate(attempts):
        assert attempt.wait().exit_code == 0
        attempt.collect()
        assert attempt.text("files/b") == str(number)


HOSTILE = """
echo ok > ok
ln -s /etc/passwd absolute
ln -s ../../../../../../../../etc/passwd upwards
ln -s /etc folder
ln -P absolute second
mkfifo pipe
echo x > mode && chmod 6777 mode
echo forged > ../step.json
echo forged > ../FAILURE
ln -sf /etc/passwd ../samples.csv
"""


def test_pipes_and_links_out_of_the_attempt_are_not_collected(bench: Open) -> None:
    attempt, outcome = bench().run("sh", "-c", HOSTILE)
    assert outcome.exit_code == 0, attempt.text("stderr.log")
    results = attempt.directory / "files"
    assert sorted(path.name for path in results.iterdir()) == ["mode", "ok"]
    assert (results / "mode").stat().st_mode & 0o7777 == 0o700
    beside = {path.name for path in attempt.directory.iterdir()}
    assert beside == {"exit_code", "files", "outcome.json", "stderr.log", "stdout.log"}


def member(name: str, **fields: Any) -> tarfile.TarInfo:
    """Return an archive member with these fields."""
    found = tarfile.TarInfo(name)
    for key, value in fields.items():
        setattr(found, key, value)
    return found


def test_files_of_a_hostile_machine_stay_in_the_attempt_directory(
    bench: Open, server: openssh.Server, tmp_path: Path
) -> None:
    """Also the `tar` of the machine may be hostile."""
    outside = tmp_path / "outside"
    archive = server.directory / "hostile.tar"
    with tarfile.open(archive, "w") as content:
        for name in (f"{outside}", "../outside", "files/../../outside", "files/ok"):
            content.addfile(member(name, size=5), io.BytesIO(b"forge"))
        content.addfile(member("files/link", type=tarfile.SYMTYPE, linkname=str(tmp_path)))
        content.addfile(member("files/link/outside", size=5), io.BytesIO(b"forge"))
        content.addfile(member("files/hard", type=tarfile.LNKTYPE, linkname="files/link"))
        content.addfile(member("files/device", type=tarfile.CHRTYPE, devmajor=1, devminor=3))
    target = bench()
    attempt = target.start("true")
    attempt.wait()
    with server.replaced("tar", f"cat > /dev/null; cat {archive}"):
        attempt.collect()
    assert not outside.exists()
    found = {path.relative_to(attempt.directory / "files") for path in (attempt.directory / "files").rglob("*")}
    assert found == {Path("ok"), Path("link"), Path("link/outside")}
    assert not (attempt.directory / "files/link").is_symlink()


def test_a_log_truncated_by_a_full_disk_is_fetched_completely(bench: Open) -> None:
    attempt = bench().start("sh", "-c", "seq 1000; until test -e go; do sleep 0.05; done; seq 1000 2000")
    attempt.printed("1000\n")
    # A full disk may leave the log without its end. Later lines then do not continue the file, and are not appended.
    log = attempt.directory / "stdout.log"
    os.truncate(log, 1000)
    (attempt.there / "files/go").touch()
    attempt.wait()
    assert log.stat().st_size == 1000
    attempt.collect()
    assert attempt.text() == "".join(f"{n}\n" for n in [*range(1, 1001), *range(1000, 2001)])
