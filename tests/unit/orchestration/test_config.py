"""`config.project` may be read anywhere, but changed only on the main thread outside of parallel regions."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.model.events import ConfigurationChanged
from toolbox.ground.model.secrets import Secret
from toolbox.orchestration import config, run
from toolbox.records.runs.steps import Step

from .conftest import Seen, Work

DOCUMENT = """
tests: {size: 1, again: "@tests.size", "key.with.dots": [a, b]}
secrets: {dir: {env_key: SECRETS}, token: token-file}
token: "*$@secrets.token"
"""


@pytest.fixture(autouse=True)
def _project(work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token-file").write_text("hunter2")
    monkeypatch.setenv("SECRETS", str(tmp_path))
    work(DOCUMENT)


def test_a_value_is_read_with_its_references_resolved() -> None:
    assert config.project.get_config("tests.again") == 1
    assert config.project.get_config('tests["key.with.dots"][1]') == "b"
    assert isinstance(config.project.get_config("token"), Secret)


@pytest.mark.parametrize("default", [None, 0, "x"])
def test_a_default_is_returned_for_a_missing_field(default: object) -> None:
    assert config.project.get_config("tests.missing", default=default) is default


def test_a_missing_field_without_a_default_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"tests\.sise.*size"):
        config.project.get_config("tests.sise")


def test_set_config_changes_later_reads_and_records_the_caller(seen: Seen) -> None:
    config.project.set_config("tests.size", 5)
    assert config.project.get_config("tests.again") == 5
    (change,) = seen.of(ConfigurationChanged)
    assert (change.path, change.value) == ("tests.size", "5")
    assert f"{Path(__file__).name}:" in change.by


def test_set_config_updates_the_file_for_child_processes(tmp_path: Path) -> None:
    config.project.set_config("tests.size", 5)
    written = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert written["tests"] == {"size": 5, "again": 5, "key.with.dots": ["a", "b"]}
    assert written["token"] == "*$@secrets.token"


def test_set_config_does_not_create_fields() -> None:
    with pytest.raises(ConfigurationError, match="sise"):
        config.project.set_config("tests.sise", 5)
    assert config.project.get_config("tests.sise", default=None) is None


def test_mutating_the_value_after_set_config_changes_nothing() -> None:
    value = ["a"]
    config.project.set_config("tests.size", value)
    value.append("b")
    config.project.get_config("tests.size").append("c")
    assert config.project.get_config("tests.size") == ["a"]


def test_a_secret_passed_to_set_config_is_not_shown_or_written(top: Step, seen: Seen, tmp_path: Path) -> None:
    top.recorder.redactor.add(["hunter2"])
    config.project.set_config("tests.size", "hunter2")
    assert seen.of(ConfigurationChanged)[0].value == "***"
    assert "hunter2" not in (tmp_path / "config.yaml").read_text()


def test_another_thread_cannot_change_a_field_and_the_error_names_it() -> None:
    with ThreadPoolExecutor(thread_name_prefix="mine") as threads:
        fault = threads.submit(config.project.set_config, "tests.size", 2).exception()
    assert str(fault) == "set_config('tests.size'): only the main thread can change the configuration, not mine_0"
    assert config.project.get_config("tests.size") == 1


def test_a_parallel_region_cannot_change_a_field_and_the_error_names_it() -> None:
    with pytest.raises(ConfigurationError, match=r"set_config\('tests.size'\).*`deploy`"), run.Parallel("deploy"):
        config.project.set_config("tests.size", 2)
    assert config.project.get_config("tests.size") == 1


def test_a_parallel_task_can_read_fields_but_not_change_them() -> None:
    def task() -> None:
        assert config.project.get_config("tests.size") == 1
        with pytest.raises(ConfigurationError, match="`deploy`"):
            config.project.set_config("tests.size", 2)

    with run.Parallel("deploy", max_threads=1) as parallel:
        parallel.delayed(task)
    config.project.set_config("tests.size", 3)
    assert config.project.get_config("tests.size") == 3


REFUSED: dict[str, tuple[str, object, str]] = {
    "dangling reference": ("tests.size", "@tests.sise", "tests.sise"),
    "dangling reference inside": ("tests.size", {"a": ["x {@no.such}"]}, "no.such"),
    "loop": ("tests.size", "@tests.again", "loop"),
    "contract": ("secrets.dir", 7, "`secrets.dir` must be a mapping, not 7"),
    "object": ("tests.size", object(), "a configuration cannot hold a object"),
    "function": ("tests.size", len, "a configuration cannot hold a builtin_function_or_method"),
    "inside": ("tests.size", {"a": [object()]}, "a configuration cannot hold a dict"),
    "lock": ("tests.size", threading.Lock(), "a configuration cannot hold a lock"),
}


@pytest.mark.parametrize(("path", "value", "message"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_value_is_refused_without_changing_the_configuration(
    seen: Seen, tmp_path: Path, path: str, value: object, message: str
) -> None:
    config.project.set_config("tests.size", 5)
    document, written, events = config.project.get_config("$"), (tmp_path / "config.yaml").read_bytes(), [*seen.events]
    with pytest.raises(ConfigurationError) as caught:
        config.project.set_config(path, value)
    assert message in str(caught.value)
    assert (config.project.get_config("tests"), config.project.get_config("tests.again")) == (document["tests"], 5)
    assert (tmp_path / "config.yaml").read_bytes() == written
    assert seen.events == events
