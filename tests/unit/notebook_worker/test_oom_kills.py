"""The count of killed processes is read from the control group, and else from the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolbox.notebook_worker import oom_kills


@pytest.mark.parametrize(
    ("groups", "file"),
    [
        ("0::/a/b\n", "sys/fs/cgroup/a/b/memory.events"),
        ("0::/a/b\n", "sys/fs/cgroup/memory.events"),
        ("4:cpu,memory:/a\n0::/\n", "sys/fs/cgroup/memory/a/memory.oom_control"),
        ("4:memory:/host/a\n", "sys/fs/cgroup/memory/memory.oom_control"),
        ("", "proc/vmstat"),
    ],
)
def test_the_count_is_read_from_each_version_of_control_groups(tmp_path: Path, groups: str, file: str) -> None:
    for path, content in (("proc/self/cgroup", groups), (file, "low 0\noom 9\noom_kill 3\n")):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content)
    assert oom_kills.count(tmp_path) == 3


def test_a_system_without_counts_has_none(tmp_path: Path) -> None:
    assert oom_kills.count(tmp_path) == 0
