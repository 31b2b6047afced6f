"""Requirements for every backend, on a real target: the output and the resource usage of a workload are recorded."""

from __future__ import annotations

import csv
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.conformance.sites import Attempt, Bench, Orchestrator, Site, wait_for
from tests.servers import small_disks
from toolbox.ground.model.errors import StepError
from toolbox.ground.model.verdicts import Cause
from toolbox.ground.model.workloads import EndedBy

TAIL = 1 << 16
BURN = "while :; do :; done"


def rows(attempt: Attempt, name: str) -> list[dict[str, float]]:
    """Return the samples in a CSV file of an attempt."""
    read = csv.DictReader(attempt.text(name).splitlines())
    return [{key: float(value) for key, value in row.items()} for row in read]


def test_a_log_has_a_limit_and_keeps_its_end(bench: Bench) -> None:
    printed, limit = 20_000_004, 1 << 20
    attempt, outcome = bench.run("sh", "-c", f"yes 0123456789 | head -c {printed}; printf 'the end'", log_bytes=limit)
    dropped = printed + len("the end") - limit
    note = f"\n[topgallant: {dropped - TAIL} bytes are left out here: the log has reached its limit]\n"
    beginning, end = attempt.text().split(note)
    assert (len(beginning), beginning[:13]) == (limit, "0123456789\n01")
    assert (len(end), end[-18:]) == (TAIL, "23456789\n01the end")
    assert outcome.log_dropped == dropped


def test_each_log_has_its_own_limit(bench: Bench) -> None:
    attempt, outcome = bench.run("sh", "-c", "printf 12345; printf 1234 >&2", log_bytes=4)
    assert attempt.text().startswith("1234\n[topgallant: 0 bytes")
    assert attempt.text("stderr.log") == "1234"
    assert outcome.log_dropped == 1


def test_an_incomplete_line_is_in_the_log_at_once(bench: Bench, tmp_path: Path) -> None:
    attempt = bench.start("sh", "-c", f"printf 'password: '; touch {tmp_path}/printed; sleep 600")
    if bench.site.forwards_whole_lines:
        wait_for((tmp_path / "printed").exists, "the text without an end of line")
    else:
        attempt.printed("password: ")
    attempt.cancel()
    assert attempt.text() == "password: "


def test_binary_output_is_in_the_log_unchanged(bench: Bench) -> None:
    source = "import os; os.write(1, bytes(range(256)) * 1000)"
    attempt, _ = bench.run("python3", "-c", source)
    assert (attempt.directory / "stdout.log").read_bytes() == bytes(range(256)) * 1000


def test_the_last_output_before_a_kill_is_in_the_log(bench: Bench) -> None:
    attempt, _ = bench.run("sh", "-c", "seq 100000; exec kill -9 $$")
    assert attempt.text() == "".join(f"{number}\n" for number in range(1, 100_001))


def test_the_processor_and_the_memory_are_sampled(bench: Bench) -> None:
    attempt, _ = bench.run("sh", "-c", BURN, sample_seconds=0.2, run=2.0)
    samples = rows(attempt, "samples.csv")
    assert len(samples) >= 3
    assert [sample["seconds"] for sample in samples] == sorted(sample["seconds"] for sample in samples)
    assert 3 < statistics.median(sample["cpu_percent"] for sample in samples) < 130  # less than 100 on a busy machine
    assert all(100_000 < sample["memory_bytes"] < 100_000_000 for sample in samples)
    assert {sample["processes"] for sample in samples} == {1}


def test_nothing_is_sampled_by_default(bench: Bench) -> None:
    attempt, _ = bench.run("true")
    assert not (attempt.directory / "samples.csv").exists()


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: Site) -> Path:
    """Return a fake `nvidia-smi`, which prints sample values for exactly the arguments that the supervisor passes."""
    if site.name != "local":
        pytest.skip("the search path of another machine cannot be changed")
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\n"
        "import sys, time\n"
        "argv = ['--query-gpu=index,utilization.gpu,memory.used', '--format=csv,noheader,nounits', '--loop-ms=200']\n"
        "assert sys.argv[1:] == argv\n"
        "while True:\n"
        "    print('0, 35, 1024\\n1, [N/A], 0', flush=True)\n"
        "    time.sleep(0.2)\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    return program


def test_gpus_are_sampled_if_the_machine_has_any(bench: Bench, nvidia_smi: Path) -> None:
    other = bench.orchestrator()
    attempt = bench.start("sleep", "600", sample_seconds=0.2, by=other)
    wait_for(lambda: attempt.text("gpu_samples.csv").count("\n") > 4, "samples")
    outcome = attempt.cancel()
    header, *lines = (line.split(",", 1) for line in attempt.text("gpu_samples.csv").splitlines())
    assert header == ["seconds", "gpu,utilization_percent,memory_mib"]
    assert {line for _, line in lines} == {"0,35,1024", "1,[N/A],0"}
    assert {sample["processes"] for sample in rows(attempt, "samples.csv")} == {1}
    assert outcome.leftovers == 0
    assert [p for p in psutil.process_iter(["cmdline"]) if str(nvidia_smi) in (p.info["cmdline"] or [])] == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield the mount point of a disk of one megabyte."""
    with small_disks.mounted(tmp_path / "disk", 1 << 20) as disk:
        yield disk


@pytest.fixture
def crowded(site: Site, small_disk: Path, tmp_path: Path) -> Iterator[Bench]:
    """Yield a bench whose attempts are on a small disk of the site."""
    orchestrator = Orchestrator(site.crowded(small_disk), tmp_path / "orchestrator")
    found = Bench(orchestrator, tmp_path if site.is_apart else small_disk)
    yield found
    found.close()
    orchestrator.backend.close()


FILL = "head -c 2000000 /dev/zero > filler; seq 100000; exit 5"


def test_the_outcome_is_known_although_the_disk_is_full(crowded: Bench) -> None:
    attempt = crowded.start("sh", "-c", FILL, sample_seconds=0.2)
    outcome = attempt.wait()
    assert (outcome.ended_by, outcome.exit_code) == (EndedBy.EXIT, 5)
    assert outcome.log_fault == "No space left on device"
    assert (attempt.there / "exit_code").read_text() == "5\n"


def test_a_full_disk_is_reported_and_can_be_emptied(crowded: Bench, small_disk: Path) -> None:
    filler = small_disk / "filler"
    subprocess.run(["dd", "if=/dev/zero", f"of={filler}", "bs=4k"], capture_output=True, check=False)
    if crowded.site.starts_later:
        outcome = crowded.start("true").wait()
        assert outcome.ended_by in (EndedBy.LOST, EndedBy.NOT_STARTED)
        assert "No space left on device" in outcome.message
        filler.unlink()
        assert crowded.start("true", name="another").wait().exit_code == 0
        return
    with pytest.raises(StepError, match=r"there: .*No space left on device") as caught:
        crowded.start("true")
    assert caught.value.cause is Cause.INFRASTRUCTURE
    filler.unlink()
    assert crowded.start("true").wait().exit_code == 0
