"""Requirements for every check, comparator, metric source, report, section and contract, also in a workspace."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, RootModel, ValidationError

from toolbox.config import contract, paths
from toolbox.ground.extensions import discovery, loading
from toolbox.ground.extensions.protocols import CHECKS, COMPARATORS, METRICS, ExtendingTarget, Kind
from toolbox.ground.kit.server_answers import Generation, ServerError, Token
from toolbox.ground.model.events import RunFinished, StepKind
from toolbox.ground.model.evidence import Evidence, Judgement, Metric, Reference
from toolbox.ground.model.model_answers import Mismatch
from toolbox.ground.model.verdicts import Verdict
from toolbox.ground.system import modules, places
from toolbox.matrix.workload_block import WorkloadBlock
from toolbox.orchestration import projects
from toolbox.records.runs.run_state import CellAttempt, RunState, State, StepState
from toolbox.reports import REPORTS, _web_page
from toolbox.reports.page.sections import PAGE_SECTIONS, PageCell


def load(kind: Kind[Any], name: str) -> Any:
    """Return the model of a plugin."""
    return loading.load(kind, name)


def example(model: type[BaseModel]) -> dict[str, Any]:
    """Return values for the required fields of a plugin, and for fields that its validators require.

    A required field that does not take every text has `examples` in its `Field`.
    """
    simple: dict[Any, Any] = {str: "some/text", int: 1, float: 1.0, dict[str, Any]: {"some": "text"}}
    values = {
        name: field.examples[0] if field.examples else simple[field.annotation]
        for name, field in model.model_fields.items()
        if name in FILES or (field.is_required() and field.annotation in simple)
    }
    if "upper" in model.model_fields:
        values["upper"] = 1.0
    return values


FILES = ("file", "glob")  # the fields that contain paths
KINDS: tuple[Kind[Any], ...] = (CHECKS, COMPARATORS, METRICS, REPORTS, PAGE_SECTIONS)
FOUND = {kind.folder: sorted(discovery.available(kind.folder)) for kind in KINDS}
READERS = [(kind, name, method) for kind in (CHECKS, METRICS) for name in FOUND[kind.folder] for method in kind.members]
PLUGINS = [*READERS, *((COMPARATORS, name, "compare") for name in FOUND[COMPARATORS.folder])]
CONTRACTS = [
    *sorted(contract.LIBRARY.glob("[!_]*.py")),
    *sorted(
        {
            file
            for name in places.projects()
            for folder in projects.find(name).contracts
            for file in folder.glob("[!_]*.py")
        }
    ),
]
EVIDENCE = {
    "nothing": {},
    "an empty file": {"some/text": b""},
    "a binary file": {"some/text": b"\xff\x00\xfe"},
    "broken JSON": {"some/text": b'{"some/text": NaN, "x": [[['},
    "JSON without a number": {"some/text": b'{"some/text": NaN}'},
    "other JSON": {"some/text": b"[1, 2]"},
    "the searched text several times": {"some/text": b"some/text\nsome/text\n"},
    "two numbers": {"some/text": b"0\n0\n"},
    "other digits": {"some/text": "٣".encode()},
    "many brackets": {"some/text": b"[" * 5_000},
    "one long line": {"some/text": b"x" * 1_000_000},
}
_HOSTILE = "\x1b[31m\u202e\ud800\0\n]]>"
_TOKENS = tuple(Token("a", 1, math.nan, 2**63, (Token("a", 1, -math.inf),) * 50) for _ in range(5000))
ANSWERS = {
    "nothing": Generation(),
    "an empty text": Generation("", tokens=(), input_tokens=()),
    "a long text": Generation("ab" * 100_000, tokens=_TOKENS),
    "another long text": Generation("ba" * 100_000, tokens=_TOKENS[1:], input_tokens=_TOKENS),
    "hostile text": Generation(_HOSTILE, _HOSTILE, _HOSTILE, tokens=(Token(_HOSTILE, top=(Token(_HOSTILE),)),) * 3),
    "other hostile text": Generation(
        _HOSTILE * 2, tokens=(Token(_HOSTILE * 2, 1, -1.0, 1, (Token(_HOSTILE * 9, 1, -1.0),)),) * 3
    ),
    "an error": Generation(error=ServerError(_HOSTILE, _HOSTILE * 100, 10**30)),
    "another error": Generation(error=ServerError(_HOSTILE * 2, _HOSTILE)),
}
REFERENCES = [None, Reference("cell"), Reference("cell", {}), Reference("cell", is_missing=True)]

each_plugin = pytest.mark.parametrize(("kind", "name", "method"), PLUGINS, ids=[p[1] for p in PLUGINS])
each_reader = pytest.mark.parametrize(("kind", "name", "method"), READERS, ids=[p[1] for p in READERS])
each_contract = pytest.mark.parametrize("file", CONTRACTS, ids=lambda file: f"{file.parents[1].name}-{file.stem}")


def test_there_are_plugins_to_test() -> None:
    assert all(FOUND[kind] for kind in ("checks", "metrics", "reports")), "other kinds may belong to features"
    assert CONTRACTS


@each_plugin
def test_a_plugin_is_documented(kind: Kind[Any], name: str, method: str) -> None:
    model = load(kind, name)
    assert (inspect.getmodule(model) or model).__doc__
    assert model.__doc__
    assert getattr(model, method).__doc__


@each_plugin
def test_a_plugin_is_a_model_and_refuses_unknown_fields(kind: Kind[Any], name: str, method: str) -> None:
    model = load(kind, name)
    assert issubclass(model, BaseModel)
    assert callable(getattr(model, method))
    model.model_validate(example(model))
    with pytest.raises(ValidationError, match="no_such_field"):
        model.model_validate({**example(model), "no_such_field": 1})


@each_plugin
@pytest.mark.parametrize("wrong", [None, 5, [], {"a": 1}])
def test_a_plugin_refuses_fields_of_another_type(kind: Kind[Any], name: str, method: str, wrong: object) -> None:
    model = load(kind, name)
    assert callable(getattr(model, method))
    texts = [key for key, field in model.model_fields.items() if field.annotation is str]
    for key in texts:
        with pytest.raises(ValidationError):
            model.model_validate({**example(model), key: wrong})


@pytest.mark.parametrize("content", EVIDENCE.values(), ids=EVIDENCE)
@pytest.mark.parametrize("name", FOUND["checks"])
def test_a_check_judges_any_evidence(tmp_path: Path, name: str, content: dict[str, bytes]) -> None:
    write(tmp_path, content)
    model = load(CHECKS, name)
    check = model.model_validate(example(model))
    for reference in REFERENCES:
        judgement = check.judge(Evidence(tmp_path, {"some/text": Metric("some/text", None, fault="gone")}, reference))
        assert isinstance(judgement, Judgement)
        assert judgement.message
        assert "\n" not in judgement.message
        assert len(judgement.message) < 500
        assert not (judgement.passed and not content), "the check passes without evidence"
        assert not judgement.file or (tmp_path / judgement.file).is_file()


@pytest.mark.parametrize("content", EVIDENCE.values(), ids=EVIDENCE)
@pytest.mark.parametrize("name", FOUND["metrics"])
def test_a_source_without_a_number_gives_a_reason(tmp_path: Path, name: str, content: dict[str, bytes]) -> None:
    write(tmp_path, content)
    model = load(METRICS, name)
    source = model.model_validate(example(model))
    if name in discovery.builtin("metrics") or not reads_number(source, tmp_path):
        with pytest.raises(ValueError, match="some/text") as caught:
            source.read(tmp_path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("actual", ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("name", FOUND["comparators"])
def test_a_comparator_compares_any_answer_in_bounded_time(name: str, actual: Generation) -> None:
    model = load(COMPARATORS, name)
    comparator = model.model_validate(example(model))
    for expected in ANSWERS.values():
        mismatch = comparator.compare(expected, actual)
        assert mismatch is None or isinstance(mismatch, Mismatch)
        for line in (mismatch.message, *mismatch.evidence) if mismatch is not None else ():
            assert line.isprintable(), "text of a target is escaped"
            assert 0 < len(line) < 5000


@pytest.mark.parametrize("name", FOUND["reports"])
@pytest.mark.parametrize("verdict", [Verdict.PASSED, Verdict.FAILED, Verdict.CANCELLED, None])
def test_a_report_is_written_into_the_directory_of_its_run(tmp_path: Path, name: str, verdict: Verdict | None) -> None:
    write = loading.function(REPORTS, discovery.available("reports")[name])
    assert (inspect.getmodule(write) or write).__doc__
    assert write.__doc__
    cell = StepState("000__test/000__cell", "a=<b> \x1b[31m\ud800", StepKind.CELL, verdict, message="a\n]]>\x00")
    end = RunFinished(verdict, None, 0, "", 1.0) if verdict is not None else None
    run, others = tmp_path / "run", [tmp_path / "beside", tmp_path / "run" / "journal.jsonl"]
    run.mkdir()
    for other in others:
        other.write_text("not a line of a journal")
    path = write(RunState("r-1", "project", run, State.FINISHED, finished=end, steps={cell.step: cell}))
    assert path is None or run in Path(str(path)).parents
    assert path is None or Path(str(path)).stat().st_size > 0
    assert sorted(tmp_path.iterdir()) == [others[0], run]
    assert {other.read_text() for other in others} == {"not a line of a journal"}


@pytest.mark.parametrize("name", FOUND["page_sections"])
def test_a_section_of_the_page_copes_with_missing_files_and_hostile_names(tmp_path: Path, name: str) -> None:
    make = loading.function(PAGE_SECTIONS, discovery.available("page_sections")[name])
    assert (inspect.getmodule(make) or make).__doc__
    assert make.__doc__
    attempts = [CellAttempt(1, "local", datetime.now(UTC), Verdict.FAILED)]
    step = StepState("000__test/000__cell", "a=<b> \x1b[31m\ud800", StepKind.CELL, Verdict.FAILED, attempts=attempts)
    run = tmp_path / "run"
    run.mkdir()
    section = make(RunState("r-1", "project", run, State.FINISHED, steps={step.step: step}))
    section.prepare()
    cell = PageCell("c-000000", _web_page.mark(Verdict.FAILED, State.FINISHED), step)
    parts = [part for part in (section.of_page([cell]), section.of_cell(cell)) if part is not None]
    assert section.title.strip()
    assert "</style" not in section.style
    assert all("<b>" not in part.html for part in parts), "the name of the cell is escaped"
    assert all(link.href.startswith("./") for link in section.links(step))
    assert sorted(tmp_path.iterdir()) == [run]


def reads_number(source: Any, directory: Path) -> bool:
    """Return whether a source finds a finite number, or only finite numbers."""
    try:
        value = source.read(directory)
    except ValueError:
        return False
    return all(map(math.isfinite, value if isinstance(value, tuple) else (value,)))


def write(directory: Path, content: dict[str, bytes]) -> None:
    """Write files of evidence."""
    for name, data in content.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)


@each_reader
@pytest.mark.parametrize("in_its_place", [Path.mkdir, lambda path: path.symlink_to(path.name)], ids=["folder", "loop"])
def test_a_folder_or_link_in_place_of_a_file_is_not_evidence(
    tmp_path: Path, in_its_place: Callable[[Path], None], kind: Kind[Any], name: str, method: str
) -> None:
    (tmp_path / "some").mkdir()
    in_its_place(tmp_path / "some" / "text")
    model = load(kind, name)
    plugin = model.model_validate(example(model))
    if kind is CHECKS:
        assert not getattr(plugin, method)(Evidence(tmp_path)).passed
    else:
        with pytest.raises(ValueError, match="some/text"):
            getattr(plugin, method)(tmp_path)


@each_reader
@pytest.mark.parametrize("outside", ["../text", "/etc/passwd", "some/../../text", "..", ".", "", "a\0b"])
def test_a_plugin_refuses_paths_outside_of_the_evidence(kind: Kind[Any], name: str, method: str, outside: str) -> None:
    model = load(kind, name)
    assert callable(getattr(model, method))
    for field in set(FILES) & set(model.model_fields):
        with pytest.raises(ValidationError, match=field):
            model.model_validate({**example(model), field: outside})


@each_contract
def test_a_contract_is_a_documented_model(file: Path) -> None:
    module = modules.load(f"_conformance_{file.parents[1].name}_{file.stem}", file)
    assert module.__doc__
    assert issubclass(module.Contract, BaseModel)
    assert module.Contract.__doc__


@each_contract
@pytest.mark.parametrize("wrong", [5, "text", [1], True])
def test_a_contract_refuses_a_block_that_is_not_a_mapping(file: Path, wrong: object) -> None:
    module = modules.load(f"_conformance_{file.parents[1].name}_{file.stem}", file)
    is_field = issubclass(module.Contract, RootModel)  # a single value, such as a boolean, and not a block
    with pytest.raises(ValidationError):
        module.Contract.model_validate([wrong] if is_field else wrong)


@pytest.mark.parametrize("target", loading.extending_targets(), ids=lambda target: target.__module__)
def test_the_workload_fields_of_a_backend_do_not_affect_other_backends(target: type[ExtendingTarget]) -> None:
    fields = target.workload_fields.model_fields
    assert not fields.keys() & WorkloadBlock.model_fields.keys()
    assert not [name for name, field in fields.items() if field.is_required()]
    assert {str(paths.parse(path)[0]) for path in getattr(target, "guarded_fields", ())} <= fields.keys()
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        WorkloadBlock.complete().model_validate({"command": "true", "no such field": 1})
