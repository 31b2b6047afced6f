"""Links execute modules. Here a program in place of `ssh` executes the command on this machine."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from toolbox.ansible.ssh_links import Links
from toolbox.ansible.warm_modules import Ended

COMMAND = f"/bin/sh -c {shlex.quote(sys.executable + ' && sleep 0')}"
SSH = '#!/bin/sh\nexec /bin/sh -c "$1"\n'


@pytest.fixture
def links(tmp_path: Path) -> Iterator[Links]:
    (tmp_path / "links").mkdir()
    with closing(Links(tmp_path / "links")) as opened:
        yield opened
    for process in processes(opened):
        process.wait(60)


def program(path: Path, script: str) -> list[bytes]:
    """Return the command line of a program in place of `ssh`."""
    path.write_text(script)
    path.chmod(0o755)
    return [os.fsencode(path)]


def processes(links: Links) -> list[subprocess.Popen[bytes]]:
    """Return the processes that links have started."""
    started: Any = links._started
    return list(started)


def test_the_end_of_a_link_waits_for_running_modules(links: Links, tmp_path: Path) -> None:
    ssh = program(tmp_path / "ssh", SSH)
    links.allow(ssh)
    begun, go = (tmp_path / name for name in ("begun", "go"))
    for fifo in (begun, go):
        os.mkfifo(fifo)
    module = f"""
import os
go = os.open({str(go)!r}, os.O_RDWR)
open({str(begun)!r}, "w").close()
os.read(go, 1)
print("done")
"""
    with ThreadPoolExecutor() as threads:
        result = threads.submit(links.execute, COMMAND, module.encode(), ssh)
        begun.read_text()
        first = processes(links)
        links.end(ssh)
        assert links.execute(COMMAND, b"print(1)", ssh) is None  # no link is allowed
        links.allow(ssh)
        assert links.execute(COMMAND, b"print(2)", ssh) == Ended(0, b"2\n", b"", None)  # through a second link
        writer = os.open(go, os.O_WRONLY | os.O_NONBLOCK)  # an error if the module has ended
        os.write(writer, b"x")
        os.close(writer)
        assert result.result() == Ended(0, b"done\n", b"", None)
    for process in first:
        process.wait(60)


def test_an_unused_link_ends_at_once(links: Links, tmp_path: Path) -> None:
    ssh = program(tmp_path / "ssh", SSH)
    links.allow(ssh)
    assert links.execute(COMMAND, b"print(1)", ssh) == Ended(0, b"1\n", b"", None)
    links.end(ssh)
    for process in processes(links):
        process.wait(60)


def test_the_path_of_the_interpreter_is_not_executed_by_the_shell(links: Links, tmp_path: Path) -> None:
    folder = tmp_path / "a folder; touch executed #"
    folder.mkdir()
    interpreter = folder / "python"
    interpreter.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    interpreter.chmod(0o755)
    ssh = program(tmp_path / "ssh", f'#!/bin/sh\ncd {shlex.quote(str(tmp_path))}\nexec /bin/sh -c "$1"\n')
    links.allow(ssh)
    command = f"/bin/sh -c {shlex.quote(shlex.quote(str(interpreter)) + ' && sleep 0')}"
    assert links.execute(command, b"print(1)", ssh) == Ended(0, b"1\n", b"", None)
    assert not (tmp_path / "executed").exists()


def test_a_link_whose_program_does_not_read_ends_with_the_play(links: Links, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    # The first line comes from the link. So the link runs, and nothing reads the many bytes that follow.
    ssh = program(tmp_path / "ssh", f"#!/bin/sh\nread line\necho > {shlex.quote(str(begun))}\nexec sleep 1000\n")
    links.allow(ssh)
    with ThreadPoolExecutor() as threads:
        result = threads.submit(links.execute, COMMAND, b"print(1)", ssh)
        begun.read_text()
        links.close()
        assert result.result(10) is None  # Ansible executes the module itself
    for process in processes(links):
        process.wait(10)  # a link waits 30 s for the program on the host
