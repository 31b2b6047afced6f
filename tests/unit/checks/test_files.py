"""Files that a workload has to leave."""

from pathlib import Path

import pytest

from toolbox.orchestration import judging

from .conftest import Judge


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """One file that holds something, two folders deep."""
    file = tmp_path / "profile" / "host" / "a.xplane.pb"
    file.parent.mkdir(parents=True)
    file.write_text("trace")
    return file


@pytest.mark.parametrize(
    ("glob", "count", "passed"),
    [
        ("**/*.xplane.pb", 1, True),
        ("**/*.xplane.pb", None, True),
        ("**/*.xplane.pb", 2, False),
        ("**/*.xplane.pb", 0, False),
        ("*.xplane.pb", None, False),
        ("*.xplane.pb", 0, True),
        ("profile", None, False),
        ("**/*", 1, True),
    ],
)
@pytest.mark.usefixtures("trace")
def test_as_many_files_as_expected_pass(judge: Judge, glob: str, count: int | None, passed: bool) -> None:
    judgement = judge(check="files", glob=glob, count=count)
    assert judgement.passed is passed
    assert glob in judgement.message
    assert ("at least one" if count is None else f"exactly {count}") in judgement.message


def test_more_than_exactly_one_fails_with_how_many_there_are(judge: Judge, trace: Path) -> None:
    trace.with_name("b.xplane.pb").write_text("trace")
    assert judge(check="files", glob="**/*.pb", count=1).message == "2 files match **/*.pb, exactly 1 expected"


def test_an_empty_file_fails_and_is_named_unless_that_is_allowed(judge: Judge, trace: Path) -> None:
    trace.write_text("")
    assert judge(check="files", glob="**/*.pb").message == "a.xplane.pb of **/*.pb is empty"
    assert judge(check="files", glob="**/*.pb", not_empty=False).passed


def test_a_link_that_leads_nowhere_is_no_file(judge: Judge, tmp_path: Path) -> None:
    (tmp_path / "a.pb").symlink_to("nowhere")
    assert not judge(check="files", glob="*.pb").passed


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("glob", ""), ("glob", "/etc/*"), ("glob", "../*"), ("glob", "a/../../*"),
        ("count", -1), ("count", "many"), ("pattern", "*"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_refused_and_named(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=field):
        judging.parse_check({"check": "files", "glob": "*", field: value})
