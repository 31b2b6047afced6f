"""The check `log_lacks` fails if a text is in a log."""

from pathlib import Path

import pytest

from toolbox.ground.model.evidence import Judgement

from .conftest import Judge


@pytest.mark.parametrize("content", [b"", b"step 1\nfinished\n", b"out of\nmemory", b"OUT OF MEMORY \xff"])
def test_a_log_without_the_text_passes(judge: Judge, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "stdout.log").write_bytes(content)
    assert judge(check="log_lacks", text="out of memory") == Judgement(
        True, "'out of memory' is not in stdout.log", "stdout.log"
    )


def test_the_first_line_that_contains_the_text_is_shown(judge: Judge, tmp_path: Path) -> None:
    (tmp_path / "err.log").write_bytes(b"step 1\n\xff [0] out of memory\nout of memory\n")
    assert judge(check="log_lacks", file="err.log", text="out of memory") == Judgement(
        False, "'out of memory' is in err.log:2: '\ufffd [0] out of memory'", "err.log", 2
    )
