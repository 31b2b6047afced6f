"""The files of a load can be read by the orchestrator and by a spreadsheet, whatever a server answers."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from toolbox.features.inference import load_results
from toolbox.features.inference.client.load_files import LoadCsvWriter, LoadJsonWriter, safe_cell
from toolbox.features.inference.client.load_generator import Sample, Step
from toolbox.features.inference.client.load_summary import Objectives, Summary
from toolbox.features.inference.client.token_times import Tokens
from toolbox.ground.model.foreign_text import csv_cell

STEP = Step(rate=4, seconds=10, warm_up_seconds=2)
SAMPLE = Sample(case="a/b", arrived=3.0, sent=3.5, ended=6.0, tokens=[Tokens(4.0, 1), Tokens(5.0, 2)])
FAILED = Sample(case="a/b", arrived=3.0, sent=3.0, ended=6.0, error="full")


def results(directory: Path, *samples: Sample, objectives: Objectives | None = None) -> load_results.LoadResults:
    """Write the results of a step, and read them as the orchestrator does."""
    summary = Summary(STEP, objectives or Objectives())
    for sample in samples:
        summary.add(sample)
    LoadJsonWriter(directory, summary.objectives).add(STEP, summary.figures())
    return load_results.read(directory, "load.json")


def rows(directory: Path, *samples: Sample, most_bytes: int = 10_000) -> tuple[list[dict[str, str]], int]:
    """Write the samples of a step, and return the rows, and the number of samples that were left out."""
    file = LoadCsvWriter(directory, 1, most_bytes=most_bytes)
    file.begin(STEP)
    for sample in samples:
        file.add(sample)
    file.close()
    with (directory / "load_samples.csv").open(newline="") as stream:
        return list(csv.DictReader(stream, strict=True)), file.left_out


def test_the_orchestrator_reads_each_figure(tmp_path: Path) -> None:
    objectives = Objectives(first_token=1.0, end_to_end=9.0)
    found = results(tmp_path, *[SAMPLE] * 100, FAILED, objectives=objectives)
    assert found.objectives == load_results.Objectives(first_token=1.0, end_to_end=9.0)
    step = found.step("rate=4")
    assert {name: step.figure(name) for name in load_results.FIGURES if name.startswith("end_")} == {
        f"end_to_end_{each}": 3.0 for each in ("mean", "max", "p50", "p90", "p95", "p99")
    }
    assert (step.figure("per_token_p50"), step.figure("between_tokens_p95")) == (0.5, 0.5)
    assert (step.figure("first_token_p50"), step.figure("client_delay_p50")) == (1.0, 0.5)
    assert (step.requests, step.errors, step.rate, step.seconds) == (101, 1, 4.0, 10.0)
    assert step.figure("goodput") == step.figure("completed_rate") == 100 / 8
    assert step.figure("tokens_per_second") == 300 / 8
    assert [(each.message, each.requests) for each in step.error_messages] == [("full", 1)]


def test_a_load_without_objectives_has_no_goodput(tmp_path: Path) -> None:
    assert results(tmp_path, SAMPLE).step("rate=4").goodput is None


def test_the_results_can_be_read_before_the_first_step(tmp_path: Path) -> None:
    LoadJsonWriter(tmp_path, Objectives())
    assert load_results.read(tmp_path, "load.json").steps == []
    assert [path.name for path in tmp_path.iterdir()] == ["load.json"]


def test_as_many_different_errors_as_possible_can_be_read(tmp_path: Path) -> None:
    errors = [Sample(arrived=3.0, sent=3.0, ended=6.0, error=f"{number} " + "\x1b" * 20_000) for number in range(500)]
    assert len(results(tmp_path, *errors).step("rate=4").error_messages) == 100


def test_a_sample_is_a_row(tmp_path: Path) -> None:
    assert rows(tmp_path, SAMPLE) == (
        [
            {
                "step": "rate=4",
                "case": "a/b",
                "arrived": "3.000000",
                "sent": "3.500000",
                "first_token": "4.000000",
                "ended": "6.000000",
                "tokens": "3",
                "error": "",
            }
        ],
        0,
    )


def test_a_text_stays_in_its_cell(tmp_path: Path) -> None:
    ((row,), _) = rows(tmp_path, Sample(case='a",b', arrived=3.0, sent=3.0, ended=6.0, error='\x1b[31mred\r\n,"'))
    assert (row["case"], row["error"]) == ('a",b', r'\x1b[31mred\r\n,"')
    assert (tmp_path / "load_samples.csv").read_text().count("\n") == 2


@pytest.mark.parametrize(
    "text", ["=1", "+1", "-1", "@a", "\t=1", "\r=1", "\n=1", "\uff1d1", "\uff0b1", "\uff0d1", "\uff20a"]
)
def test_no_cell_is_a_formula(text: str) -> None:
    assert safe_cell(text).startswith("'")
    assert csv_cell(safe_cell(text)) == safe_cell(text)
    assert safe_cell(text).isprintable()


@pytest.mark.parametrize("text", ["\ud800", "a\x00b", "\u202e", "x" * 100_000])
def test_a_cell_is_printable_and_short(text: str) -> None:
    assert safe_cell(text).isprintable()
    assert len(safe_cell(text).encode()) < 1000


def test_rows_beyond_the_limit_are_counted(tmp_path: Path) -> None:
    found, left_out = rows(tmp_path, *[SAMPLE] * 50, most_bytes=1000)
    assert len(found) + left_out == 50
    assert found
    assert (tmp_path / "load_samples.csv").stat().st_size < 1100
