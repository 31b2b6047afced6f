"""The cgroups of this process are found as they are mounted, and the kernel's count of killed processes is read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from toolbox.ground.kit import own_cgroups
from toolbox.ground.kit.own_cgroups import Mount, OomCounter


@pytest.fixture(autouse=True)
def _file_is_searched_again() -> Iterator[None]:
    own_cgroups._own_oom_file.cache_clear()
    yield
    own_cgroups._own_oom_file.cache_clear()


@pytest.mark.parametrize(
    ("hierarchy", "file", "where"),
    [
        ("", "memory.events", "session/attempt"),
        ("", "memory.events", "session"),
        ("", "memory.events", ""),
        ("memory", "memory.oom_control", "session"),
    ],
)
def test_processes_that_are_killed_for_want_of_memory_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hierarchy: str, file: str, where: str
) -> None:
    group = tmp_path / "session/attempt"
    group.mkdir(parents=True)
    monkeypatch.setattr(own_cgroups, "mounts", lambda: {hierarchy: Mount(str(tmp_path), "/")})
    monkeypatch.setattr(own_cgroups, "groups", lambda: {hierarchy: "/session"})
    text = "oom 3\noom_kill {}\noom_group_kill 0\n"
    (tmp_path / where / file).write_text(text.format(2))
    counter = OomCounter("" if hierarchy else str(group))
    assert counter.count() == 0
    (tmp_path / where / file).write_text(text.format(4))
    assert counter.count() == 2


@pytest.mark.parametrize("text", ["", "oom_kill", "oom_kill -1", "oom_kill many", "under_oom 1"])
def test_without_a_count_of_the_kernel_nothing_was_killed(tmp_path: Path, text: str) -> None:
    (tmp_path / "memory.events").write_text(text)
    assert own_cgroups._oom_kills(str(tmp_path / "memory.events")) is None
    assert own_cgroups._oom_kills("") is None


def test_the_hierarchies_are_read_as_they_are_mounted(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {
        "/proc/self/mountinfo": [
            "33 31 0:30 /docker/abc /sys/fs/cgroup/freezer rw shared:1 - cgroup cgroup rw,freezer",
            "41 31 0:38 /docker/abc /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
            "23 1 0:5 / / rw - ext4 /dev/root rw",
        ],
        "/proc/self/cgroup": ["6:freezer:/docker/abc/inner", "0::/docker/abc"],
    }
    monkeypatch.setattr(own_cgroups, "lines", lambda file: iter(texts[file]))
    mounts, own = own_cgroups.mounts(), own_cgroups.groups()
    assert mounts[""].path(own[""]) == "/sys/fs/cgroup/unified"
    assert mounts["freezer"].path(own["freezer"]) == "/sys/fs/cgroup/freezer/inner"
    assert mounts["freezer"].path("/elsewhere") == ""


@pytest.mark.parametrize("else_machine", [True, False])
def test_without_a_group_that_counts_the_machine_may_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, else_machine: bool
) -> None:
    monkeypatch.setattr(own_cgroups, "groups", dict)
    monkeypatch.setattr(own_cgroups, "_MACHINE", str(tmp_path / "vmstat"))
    (tmp_path / "vmstat").write_text("oom_kill 3\n")
    counter = OomCounter(else_machine=else_machine)
    (tmp_path / "vmstat").write_text("oom_kill 4\n")
    assert counter.count() == int(else_machine)


def test_a_group_of_the_host_is_the_root_of_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_cgroups, "mounts", lambda: {"": Mount(str(tmp_path), "/docker/abc")})
    monkeypatch.setattr(own_cgroups, "groups", lambda: {"": "/"})
    (tmp_path / "memory.events").write_text("oom_kill 3\n")
    counter = OomCounter()
    (tmp_path / "memory.events").write_text("oom_kill 5\n")
    assert counter.count() == 2
