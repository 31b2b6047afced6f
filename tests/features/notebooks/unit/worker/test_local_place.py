"""Checks on this machine run with the limits of the settings, and in a directory of their own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from toolbox.features.notebooks.worker import cpu_reservation, local_place
from toolbox.features.notebooks.worker.execution_place import PlaceError
from toolbox.features.notebooks.worker.local_place import LocalPlace
from toolbox.features.notebooks.worker.notebook_results import Fault
from toolbox.features.notebooks.worker.notebook_settings import Settings
from toolbox.ground.kit.own_cgroups import OomCounter


def settings(tmp_path: Path, runtime: Mapping[str, Any] | None = None, **limits: Any) -> Settings:
    runtime = {"name": "r", "python": sys.executable, **(runtime or {})}
    return Settings.from_json({"runtime": runtime, "limits": limits, "environments": str(tmp_path / "cache")})


@pytest.fixture(name="place")
def _place(tmp_path: Path) -> Iterator[LocalPlace]:
    with local_place.opened(settings(tmp_path), None, tmp_path) as place:
        yield place


def test_a_shell_check_gets_its_variables(place: LocalPlace) -> None:
    assert place.shell('echo "$PROMISE_X"', {"PROMISE_X": "a b"}, timeout=60).stdout == "a b\n"


def test_a_check_runs_in_an_empty_directory_that_is_removed(place: LocalPlace, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    ended = place.shell("ls -A; pwd; touch left", {}, timeout=60)
    assert Path(ended.stdout.strip()).parent == tmp_path
    assert sorted(tmp_path.iterdir()) == before


def test_a_python_check_runs_with_the_python_of_the_runtime(place: LocalPlace) -> None:
    ended = place.python("import sys; print(sys.executable); sys.exit(4)", timeout=60)
    assert (ended.stdout.strip(), ended.status) == (sys.executable, 4)


def test_a_check_that_exceeds_its_memory_gets_an_exception(tmp_path: Path) -> None:
    with local_place.opened(settings(tmp_path, memory_bytes=200_000_000), None, tmp_path) as place:
        assert place.python("x = bytearray(50_000_000)", timeout=60).status == 0
        assert "MemoryError" in place.python("x = bytearray(500_000_000)", timeout=60).stderr


def test_reserved_address_space_does_not_count_as_memory(tmp_path: Path) -> None:
    program = "import mmap; mmap.mmap(-1, 1 << 40, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0)"
    with local_place.opened(settings(tmp_path, memory_bytes=200_000_000), None, tmp_path) as place:
        assert place.python(program, timeout=60).stderr == ""


def test_a_check_runs_on_the_reserved_processors(tmp_path: Path) -> None:
    with local_place.opened(settings(tmp_path, cpus=1), None, tmp_path) as place:
        ended = place.python("import os; print(os.sched_getaffinity(0), os.environ['OMP_NUM_THREADS'])", timeout=60)
        assert place.cpus
    assert ended.stdout.strip() == f"{set(place.cpus)} 1"
    assert len(cpu_reservation.available()) >= 1


def test_too_much_output_of_a_check_is_a_fault(tmp_path: Path) -> None:
    with local_place.opened(settings(tmp_path, output_bytes=1000), None, tmp_path) as place:
        assert place.shell("yes", {}, timeout=60).fault is Fault.TOO_MUCH_OUTPUT


def test_a_check_that_does_not_end_is_a_fault(place: LocalPlace) -> None:
    assert place.shell("sleep 600", {}, timeout=0.1).fault is Fault.TIMEOUT


@pytest.mark.parametrize(("kills", "fault"), [(1, Fault.OUT_OF_MEMORY), (0, None)])
def test_only_a_kill_by_the_system_is_out_of_memory(
    place: LocalPlace, monkeypatch: pytest.MonkeyPatch, kills: int, fault: Fault | None
) -> None:
    monkeypatch.setattr(OomCounter, "count", lambda _: kills)
    assert place.shell("kill -9 $$", {}, timeout=60).fault is fault


def test_a_machine_without_the_python_of_the_runtime_is_told(tmp_path: Path) -> None:
    with (
        local_place.opened(settings(tmp_path, {"python": "python-nowhere"}), None, tmp_path) as place,
        pytest.raises(PlaceError, match="the machine has no python-nowhere"),
    ):
        place.python("", timeout=60)


def test_startup_files_of_the_user_have_no_influence(place: LocalPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONSTARTUP", "/startup.py")
    monkeypatch.setenv("IPYTHONDIR", "/ipython")
    variables = place.python("import os; print(os.environ.get('PYTHONSTARTUP'), os.environ['IPYTHONDIR'])", timeout=60)
    assert variables.stdout.strip() == f"None {place.private / 'ipython'}"


def test_an_environment_goes_before_the_programs_of_the_machine(tmp_path: Path) -> None:
    with local_place.opened(settings(tmp_path), tmp_path / "env", tmp_path) as place:
        ended = place.shell("echo $PATH $VIRTUAL_ENV", {}, timeout=60)
    assert ended.stdout.startswith(f"{tmp_path}/env/bin:{os.environ['PATH']}")
    assert ended.stdout.endswith(f"{tmp_path}/env\n")
