"""The session of a project is visible in all threads; a command outside of a run has its own step."""

import contextvars
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from toolbox.ansible import warm
from toolbox.config.configuration import Configuration, Request
from toolbox.ground.model.errors import UsageError
from toolbox.ground.system.redaction import Redactor
from toolbox.orchestration import session
from toolbox.orchestration.session import Session
from toolbox.records.runs import steps
from toolbox.records.runs.steps import Step

from .conftest import Work


def test_without_a_project_the_error_says_how_to_start_one() -> None:
    assert not session.is_open()
    with pytest.raises(UsageError, match="project run NAME"):
        session.current()


def test_a_thread_that_the_orchestration_starts_has_the_session_and_the_top_step(work: Work, top: Step) -> None:
    opened = work("a: 1")
    with ThreadPoolExecutor() as threads:
        assert threads.submit(lambda: (session.current(), session.step())).result() == (opened, top)


def test_a_session_ends_with_its_block(work: Work, top: Step) -> None:
    outer = work("a: 1")
    with session.opened(Session("inner", outer.configuration, outer.command_args), top) as inner:
        assert session.current() is inner
    assert session.current() is outer


@pytest.mark.parametrize(
    ("text", "variable", "is_warm"),
    [("a: 1", "", True), ("ansible_warm: true", "1", True), ("ansible_warm: false", "", False), ("a: 1", "0", False)],
)
def test_the_helpers_of_ansible_are_available_unless_they_are_switched_off(
    work: Work, monkeypatch: pytest.MonkeyPatch, text: str, variable: str, is_warm: bool
) -> None:
    monkeypatch.setenv(warm.SWITCH, variable)
    work(text)
    assert (warm.current() is not None) is is_warm


def test_child_processes_find_the_configuration_and_the_template(work: Work, tmp_path: Path) -> None:
    opened = work("a: 1")
    assert opened.variables == {
        "TOPGALLANT_FROM_CONFIG_FILE": str(tmp_path / "config.yaml"),
        "TOPGALLANT_FROM_COMMAND_ARGS_FILE": str(tmp_path / "args.yaml.j2"),
    }
    opened.config_file = None
    assert opened.variables.keys() == {"TOPGALLANT_FROM_COMMAND_ARGS_FILE"}


@pytest.mark.parametrize(("variable", "expected"), [("elsewhere", "elsewhere"), (None, "artifacts/toolbox")])
def test_a_command_outside_of_a_run_has_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ARTIFACT_DIR", raising=False)
    if variable:
        monkeypatch.setenv("ARTIFACT_DIR", variable)
    found = contextvars.Context().run(session.step)
    assert found.directory == tmp_path / expected
    assert found.directory.is_dir()


def test_the_current_step_is_used_inside_of_a_run(top: Step) -> None:
    assert steps.current() is session.step() is top


def test_the_written_configuration_applies_no_preset_again(work: Work, tmp_path: Path) -> None:
    opened = work(
        """
        size: 1
        ci_presets:
          to_apply: [big]
          big: {size: 100}
        """
    )
    changed = opened.configuration.replaced("size", 7, layer="--overrides")
    file = session.write_configuration(changed, tmp_path / "written.yaml", Redactor())
    again = Configuration.load(Request(file))
    assert again.get("size") == 7
    assert again.get("ci_presets.big") == {"size": 100}
    assert changed.get("ci_presets.to_apply") == ["big"]
