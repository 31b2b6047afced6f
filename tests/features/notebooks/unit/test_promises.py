"""A promise that no check reads is found, with the nearest name of a promise."""

from pathlib import Path

import pytest

from toolbox.features.notebooks import promises, runtime_files

SHIPPED = Path(*runtime_files.CHECKS)


def unread(*names: str, folder: Path = SHIPPED) -> list[str]:
    return [text for _, text in promises.unread(names, folder.iterdir())]


@pytest.mark.parametrize(
    "name",
    ["cpus", "device", "disk_gb", "driver", "gpus", "imports", "memory_gb", "network", "packages", "versions"],
)
def test_each_documented_promise_is_read(name: str) -> None:
    assert unread(name) == []


def test_a_misspelled_promise_is_named_with_the_nearest_one() -> None:
    assert unread("disk_bg", "memory") == [
        "no check reads the promise `disk_bg`: did you mean disk_gb?",
        "no check reads the promise `memory`: did you mean memory_gb?",
    ]


def test_a_check_may_list_in_a_comment_what_it_reads(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("# Promise: licence\nfor key in promises: ...\n")
    assert unread("licence", folder=tmp_path) == []
    assert unread("licences", folder=tmp_path) != []
