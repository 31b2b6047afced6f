"""Requirements are data: each line is a requirement or an allowed option, and equal requirements have one digest."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolbox.features.notebooks.worker import requirement_lines
from toolbox.features.notebooks.worker.requirement_lines import (
    InvalidRequirementError,
    digest,
    normalized,
    with_kernel,
)

PYTHON = ("CPython", "3.11", "linux", "/usr")


def test_comments_empty_lines_and_continuations_are_removed() -> None:
    lines = ["# a list", "numpy>=2  # for arrays", "", "pandas \\\n  --hash=sha256:00", "ipykernel"]
    assert normalized(lines) == ["numpy>=2", "pandas --hash=sha256:00", "ipykernel"]


@pytest.mark.parametrize("line", ["ipykernel", "IPyKernel>=6", "ipykernel==6.29.5 ; python_version>'3'"])
def test_ipykernel_is_added_only_if_it_is_missing(line: str) -> None:
    assert with_kernel([line]) == [line]
    assert with_kernel(["ipykernel-extra", "# ipykernel"]) == ["ipykernel-extra", "# ipykernel", "ipykernel"]


@pytest.mark.parametrize(
    "line",
    [
        "--index-url https://host/simple",
        "--extra-index-url=https://host/simple",
        "-f /wheels",
        "--pre",
        "numpy[extra]~=2.0; python_version < '4'",
        "thing @ https://host/thing.whl",
    ],
)
def test_requirements_and_allowed_options_are_kept(line: str) -> None:
    assert normalized([line])[0] == line


@pytest.mark.parametrize(
    "line",
    [
        "-r other.txt",
        "-c constraints.txt",
        "-e .",
        "--editable=/code",
        "--target=/etc",
        "--config-settings=x",
        "numpy --target=/etc",
        "--pre -r other.txt",
        "numpy \\\n -e .",
        "numpy\n-e .",
        "./package",
        "../package.whl",
        "package.whl",
        "~/package.whl",
        "/nowhere/package.whl",
        "thing @ file:///nowhere/package.whl",
        "nu\x1bmpy",
        "$(reboot)",
    ],
)
def test_a_line_that_reads_files_or_changes_pip_is_refused(line: str) -> None:
    with pytest.raises(InvalidRequirementError):
        normalized([line])


def test_a_refused_option_is_named_with_the_allowed_ones() -> None:
    with pytest.raises(InvalidRequirementError, match=r"`-r other.txt`: the option -r is not allowed.*--find-links"):
        normalized(["-r other.txt"])


def test_the_order_of_lines_does_not_change_the_digest() -> None:
    assert digest(["a", "b"], PYTHON) == digest(["b", "a", "a"], PYTHON)


def test_another_requirement_or_interpreter_changes_the_digest() -> None:
    changed = [digest(["a"], PYTHON), digest(["a>1"], PYTHON), digest(["a"], ("CPython", "3.12", "linux", "/usr"))]
    assert len(set(changed)) == len(changed)


@pytest.mark.parametrize("form", ["{}", "thing @ file://{}"])
def test_a_wheel_on_the_target_counts_with_its_content(tmp_path: Path, form: str) -> None:
    wheel = tmp_path / "thing-1-py3-none-any.whl"
    wheel.write_bytes(b"one")
    lines = normalized([form.format(wheel)])
    before = digest(lines, PYTHON)
    wheel.write_bytes(b"two")
    assert digest(lines, PYTHON) != before


def test_only_absolute_paths_and_file_urls_name_local_files() -> None:
    assert requirement_lines.local_file("thing @ https://host/thing.whl") is None
    assert requirement_lines.local_file("thing @ file:///w/a%20b.whl#x") == Path("/w/a b.whl")
