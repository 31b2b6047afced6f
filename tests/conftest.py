"""Fixtures and settings that all tests share."""

import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests import forked_commands
from tests.leftovers import Leftovers
from toolbox import testing
from toolbox.ground.system import environ
from toolbox.testing import Workspace

settings.register_profile("untimed", deadline=None)  # examples are slow on a busy machine
settings.load_profile("untimed")
_WRITES_NO_BYTECODE = sys.dont_write_bytecode


def pytest_configure(config: pytest.Config) -> None:
    # Programs would inherit an ignored signal. They do not inherit a handler.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # below nohup, which is to keep the tests running
        signal.signal(signal.SIGHUP, lambda *_: None)
    if not hasattr(config, "workerinput"):  # not in a worker of pytest-xdist
        config.pluginmanager.register(Leftovers(config))


@pytest.hookimpl(tryfirst=True)
def pytest_make_collect_report() -> None:
    """Let pytest write bytecode of the tests, although workloads turn that off when tests import them."""
    sys.dont_write_bytecode = _WRITES_NO_BYTECODE


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Name the directory of a failed test, and the directories of its runs, which pytest keeps for a while."""
    report = yield
    directory = getattr(item, "funcargs", {}).get("tmp_path")
    if report.failed and directory is not None:
        runs = sorted(folder for folder, _, files in os.walk(directory) if "journal.jsonl" in files)
        report.sections.append(("Files of the test", "\n".join([str(directory), *runs])))
    return report


@pytest.fixture(scope="session", autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep every test and fixture away from the results store of the user that runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "state"))
        for name in ("TOPGALLANT_RESULTS_DATABASE", "TOPGALLANT_RESULTS_BASELINE"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def _forked_commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[forked_commands.Commands | None]:
    """Execute the command lines of workspaces in forks of a process that has imported Topgallant."""
    if environ.get(forked_commands.SWITCH) == "0":
        yield None
        return
    commands = forked_commands.Commands(tmp_path_factory.mktemp("commands"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(testing, "_start", commands.start)
        yield commands
    commands.close()


@pytest.fixture
def ansible_servers_as_programs(
    _forked_commands: forked_commands.Commands | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let command lines start the servers of Ansible as users do, for tests of these servers."""
    if _forked_commands is not None:
        monkeypatch.setattr(_forked_commands, "forks_servers", False)


@pytest.fixture(scope="session")
def toolbox_script(_forked_commands: forked_commands.Commands | None) -> str:
    """Return the start of a shell command that executes the command line of Topgallant that follows, in a fork."""
    return _forked_commands.script() if _forked_commands else forked_commands.SCRIPT


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """Return a team's repository that is still empty."""
    return Workspace(tmp_path / "workspace")
