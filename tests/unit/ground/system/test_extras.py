"""The optional libraries are those that pyproject.toml lists as extras."""

import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.system import extras, places


def test_each_extra_has_a_module_for_each_of_its_packages() -> None:
    project = tomllib.loads((places.builtin_root() / "pyproject.toml").read_text())["project"]
    # Several packages share the namespace `google`, and `files` of a distribution takes a hundred times as long.
    records = {found.name: found.read_text("RECORD") or "" for found in metadata.distributions()}
    for extra, modules in extras.MODULES.items():
        packages = [text.partition(">")[0].partition("[")[0] for text in project["optional-dependencies"][extra]]
        files = [rf"^{module.replace('.', '/')}(/__init__)?\.py," for module in modules]
        found = [
            next(name for name, record in records.items() if re.search(file, record, re.MULTILINE)) for file in files
        ]
        assert sorted(found) == sorted(packages)


def test_a_missing_library_is_named_with_the_command_for_an_installed_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(places, "builtin_root", lambda: tmp_path)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigurationError) as caught:
        extras.require("postgres", "the store")
    command = f"{sys.executable} -m pip install 'topgallant[postgres]'"
    assert str(caught.value) == f"the store needs psycopg, which is not installed: {command}"


def test_only_the_first_of_many_missing_libraries_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(extras.MODULES, "notebooks", ("no_such_a", "no_such_b", "json", "no_such_c", "no_such_d"))
    with pytest.raises(ConfigurationError) as caught:
        extras.require("notebooks", "the check")
    named = "the check needs no_such_a, no_such_b, and 2 more, which are not installed: "
    assert str(caught.value) == named + extras.install_command("notebooks")


def test_a_library_in_a_missing_namespace_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(extras.MODULES, "tpu", ("no_such_namespace.cloud.tpu_v2",))
    with pytest.raises(ConfigurationError, match="the TPU API needs no_such_namespace"):
        extras.require("tpu", "the TPU API")


def test_an_installed_library_is_accepted() -> None:
    extras.require("kubernetes", "a cluster")
