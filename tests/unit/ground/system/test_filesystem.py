"""The files of a run are private and written atomically."""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from toolbox.ground.kit import safe_files
from toolbox.ground.model import yaml_scalars, yaml_text
from toolbox.ground.model.secrets import Secret
from toolbox.ground.model.verdicts import Verdict
from toolbox.ground.system import filesystem


@pytest.fixture(autouse=True)
def _generous_umask() -> Any:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_written_files_are_private(tmp_path: Path) -> None:
    directory = filesystem.make_directory(tmp_path / "step")
    filesystem.write_text(directory / "text", "x")
    filesystem.append_text(directory / "log", "x")
    assert mode(directory) == 0o700
    assert {mode(file) for file in directory.iterdir()} == {0o600}


def test_a_public_file_becomes_private_when_it_is_written_again(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("old")
    filesystem.write_text(tmp_path / "text", "new")
    assert mode(tmp_path / "text") == 0o600


def test_missing_directories_are_created(tmp_path: Path) -> None:
    assert filesystem.write_text(tmp_path / "a" / "b" / "text", "x").read_text() == "x"


def test_a_failed_write_keeps_the_old_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filesystem.write_text(tmp_path / "text", "old")

    def full(_self: Path, _target: Path) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="no space"):
        filesystem.write_text(tmp_path / "text", "new")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_text_that_is_not_unicode_is_escaped(tmp_path: Path) -> None:
    filesystem.write_text(tmp_path / "text", "caf\udce9 ☃")
    filesystem.append_text(tmp_path / "text", "\udcff")
    assert (tmp_path / "text").read_text() == "caf\\udce9 ☃\\udcff"


def test_json_is_read_as_it_was_written(tmp_path: Path) -> None:
    value = {"text": "☃ \udce9", "verdict": Verdict.FAILED, "path": tmp_path, "none": None}
    file = filesystem.write_json(tmp_path / "value.json", value)
    assert filesystem.read_json(file) == {"text": "☃ \udce9", "verdict": "failed", "path": str(tmp_path), "none": None}


def test_appended_text_goes_to_the_end(tmp_path: Path) -> None:
    filesystem.append_text(tmp_path / "log", "one\n")
    filesystem.append_text(tmp_path / "log", "two\n")
    assert (tmp_path / "log").read_text() == "one\ntwo\n"


@pytest.mark.parametrize(
    "value",
    ["1.10", "null", "yes", "a: b", "- a", "{{ x }}", "'\"", "two\nlines\n", " led and trailed ", "☃", "", "\x1b[2J"],
)
def test_yaml_text_stays_text(value: str) -> None:
    assert yaml.safe_load(yaml_text.dump({"key": [value]})) == {"key": [value]}


@pytest.mark.parametrize("value", ["1e-4", "1e5", "12345e6", ".5e3", "-.5", 1e-5, 1e22, 0.5])
def test_what_looks_like_a_number_keeps_its_type_for_every_reader(value: str | float) -> None:
    for text in (yaml_text.dump({"key": value}), f"key: {yaml_text.dump_line(value)}"):
        for loader in (yaml.SafeLoader, yaml_scalars.Loader):
            assert yaml.load(text, Loader=loader) == {"key": value}  # both loaders are safe


def test_yaml_keeps_its_order_and_writes_no_aliases() -> None:
    shared = ["x"]
    assert yaml_text.dump({"b": shared, "a": shared}) == "b:\n- x\na:\n- x\n"


@pytest.mark.parametrize(
    "value",
    [
        {"one": 1, "true": True, "float": 1.0, "none": None, "text": "yes", "": "", "lines": "a\nb", "break": "\x85"},
        {"k" * 200: "v", "a: b": "#", 3: "3", None: "null", True: "true", 1.5: 1.5},
        {"same": 1, "other": True, "third": 1.0},
        {"k" * 200: 7, "a: b": -7, "long": 10**30, 3: 0, "10": 10},
    ],
)
def test_a_mapping_of_simple_values_is_written_as_any_mapping(value: Any) -> None:
    marked = yaml_text.dump({**value, "list": []})
    assert yaml_text.dump(value) + "list: []\n" == marked
    assert list(yaml.safe_load(yaml_text.dump(value)).items()) == list(value.items())


def test_yaml_writes_enumeration_members_and_paths_as_text(tmp_path: Path) -> None:
    assert yaml.safe_load(yaml_text.dump([Verdict.PASSED, tmp_path])) == ["passed", str(tmp_path)]


@pytest.mark.parametrize(
    "value",
    [
        *("text", 1, 1.5, float("nan"), None, True, {}, [], (), [[], {}, [{}]]),
        {"a": [1, (2, 3), {"b": None, "é\n\u2028": 'x"y'}], "e": (), Verdict.PASSED: Verdict.FAILED},
        {"x": [{1: {"y": [1]}, None: 2, False: 3}]},
        {"path": Path("/p")},
    ],
)
def test_json_has_the_form_of_the_standard_library(value: Any) -> None:
    assert filesystem.dump_json(value) == json.dumps(value, indent=2, default=str, ensure_ascii=False) + "\n"


def test_yaml_and_json_never_show_a_secret() -> None:
    secrets = {"written": Secret("hunter2", reference="*$@a.b"), "given": Secret("hunter2")}
    assert yaml.safe_load(yaml_text.dump(secrets)) == {"written": "*$@a.b", "given": "***"}
    assert json.loads(filesystem.dump_json(secrets)) == {"written": "***", "given": "***"}


@pytest.mark.parametrize(
    "value",
    [
        "text", "1.10", "null", "yes", "", " led and trailed ", "a: b", "- a", "#x", "'\"", "two\nlines\n",
        "\x85 \u2028", "☃", "\x1b[2J", "... ", "---", "a" * 500, 1, 1.5, True, None, [], {}, ["a", ["b\nc"]],
        {"k": {"l": [1, "2"]}},
    ],
)  # fmt: skip
def test_a_value_on_one_line_of_yaml_is_read_as_it_was(value: Any) -> None:
    line = yaml_text.dump_line(value)
    assert yaml.safe_load(line) == value
    assert len(line.splitlines()) <= 1


def test_a_value_on_one_line_of_yaml_never_shows_a_secret() -> None:
    line = yaml_text.dump_line({"given": Secret("hunter2"), "written": Secret("hunter2", reference="*$@a.b")})
    assert yaml.safe_load(line) == {"given": "***", "written": "*$@a.b"}


@pytest.mark.parametrize("make", [filesystem.make_directory, lambda path: safe_files.make_directory(str(path))])
def test_all_new_directories_of_a_path_are_private(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "a/b/c")
    make(tmp_path / "a/b/c")
    assert [mode(tmp_path / name) for name in ("a", "a/b", "a/b/c")] == [0o700] * 3
