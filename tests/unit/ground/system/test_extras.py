"""The optional libraries are those that pyproject.toml lists as extras."""

import importlib
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.system import extras, places
from toolbox.ground.system.extras import Extra


def each_extra() -> Iterator[Extra]:
    """Yield the extras of the core, and those of all features."""
    features = (places.builtin_root() / "toolbox/features").glob("*/extra.py")
    names = [f"toolbox.features.{file.parent.name}.extra" for file in features]
    for module in (extras, *map(importlib.import_module, names)):
        yield from (value for value in vars(module).values() if isinstance(value, Extra))


def test_each_extra_has_a_module_for_each_of_its_packages() -> None:
    project = tomllib.loads((places.builtin_root() / "pyproject.toml").read_text())["project"]
    # Several packages share the namespace `google`, and `files` of a distribution takes a hundred times as long.
    records = {found.name: found.read_text("RECORD") or "" for found in metadata.distributions()}
    for extra in each_extra():
        packages = [text.partition(">")[0].partition("[")[0] for text in project["optional-dependencies"][extra.name]]
        files = [rf"^{module.replace('.', '/')}(/__init__)?\.py," for module in extra.modules]
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
        extras.require(extras.POSTGRES, "the store")
    command = f"{sys.executable} -m pip install 'topgallant[postgres]'"
    assert str(caught.value) == f"the store needs psycopg, which is not installed: {command}"


def test_only_the_first_of_many_missing_libraries_are_named() -> None:
    extra = Extra("many", ("no_such_a", "no_such_b", "json", "no_such_c", "no_such_d"))
    with pytest.raises(ConfigurationError) as caught:
        extras.require(extra, "the check")
    named = "the check needs no_such_a, no_such_b, and 2 more, which are not installed: "
    assert str(caught.value) == named + extras.install_command(extra)


def test_a_library_in_a_missing_namespace_is_missing() -> None:
    with pytest.raises(ConfigurationError, match="the API needs no_such_namespace"):
        extras.require(Extra("one", ("no_such_namespace.cloud.tpu_v2",)), "the API")


def test_an_installed_library_is_accepted() -> None:
    extras.require(Extra("one", ("json",)), "a cluster")
