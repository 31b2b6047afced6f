"""The converter ends for every notebook: with HTML, or with the reason why there is none."""

from __future__ import annotations

import io
import json
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.features.notebooks.fakes.notebook_results import code, display, executed, markdown, notebook, stream
from toolbox.features.notebooks import html_converter


@pytest.fixture(scope="module")
def convert() -> html_converter.Converter:
    return html_converter._converter()


def results(
    monkeypatch: pytest.MonkeyPatch, directory: Path, convert: html_converter.Converter, *documents: object
) -> list[dict[str, Any]]:
    """Return the results of the program for some notebooks."""
    monkeypatch.setattr(html_converter, "_converter", lambda: convert)
    jobs = []
    for number, document in enumerate(documents):
        source = directory / f"{number}.ipynb"
        source.write_text(document if isinstance(document, str) else json.dumps(document))
        jobs.append([str(source), str(directory / f"{number}.json")])
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{json.dumps(job)}\n" for job in jobs)))
    html_converter.main()
    return [json.loads(Path(target).read_text()) for _, target in jobs]


def test_sources_outputs_and_tracebacks_are_in_the_html(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, convert: html_converter.Converter
) -> None:
    document = executed("print('2 < 3')", "raise ValueError('no <b>data</b>')")
    document["cells"].insert(0, markdown("# Title\n\n| a |\n|---|\n| 1 |\n\n`x < y`"))
    (result,) = results(monkeypatch, tmp_path, convert, document)
    for part in ("<h1>Title</h1>", "<th>a</th>", "x &lt; y", "2 &lt; 3", "no &lt;b&gt;data&lt;/b&gt;", "In&nbsp;[1]:"):
        assert part in result["html"]
    assert result["notes"] == []


def test_an_image_of_an_output_and_an_attachment_are_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, convert: html_converter.Converter
) -> None:
    attachments = {"a.png": {"image/png": "QUFB"}}
    cells = [code("1", display(image_png="QkJC")), markdown("![](attachment:a.png)", attachments=attachments)]
    (result,) = results(monkeypatch, tmp_path, convert, notebook(*cells))
    assert 'src="data:image/png;base64,QkJC"' in result["html"]
    assert 'src="data:image/png;base64,QUFB"' in result["html"]


def test_hostile_parts_do_not_reach_the_html(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, convert: html_converter.Converter
) -> None:
    evil = "\"'><script>alert(1)</script><img src=http://h/x onerror=alert(1)>"
    cells = [
        markdown(f"{evil}\n[x](javascript:alert(1)) ![y](http://h/y.png)\n<style>*{{}}</style>"),
        markdown("![](attachment:a)", attachments={"a": {f"image/png{evil}": evil, "image/png": evil}}),
        code(evil, stream(evil), display(text_html=evil), display(text_latex=evil), display(text_plain=evil), id=evil),
        code("1", display(image_png=evil), display(text_markdown=evil), count=evil),
        {"cell_type": "raw", "metadata": {"raw_mimetype": "text/html"}, "source": evil},
    ]
    for cell in cells:
        cell["metadata"] = {"tags": [evil]}
    metadata = {"language_info": {"name": evil, "pygments_lexer": evil}, "kernelspec": {"name": evil}}
    (result,) = results(monkeypatch, tmp_path, convert, notebook(*cells, **metadata))
    html = result["html"].lower()
    assert "<script" not in html
    assert "<style" not in html
    assert "<img" not in html
    assert "href" not in html


def test_each_notebook_that_cannot_be_shown_has_a_reason(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    convert: html_converter.Converter,
    capsys: pytest.CaptureFixture[str],
) -> None:
    good, *bad = results(monkeypatch, tmp_path, convert, notebook(code("1")), "{", '{"nbformat": 3}')
    assert "html" in good
    assert [each["fault"] for each in bad] == [
        "the notebook cannot be read: JSONDecodeError",
        "the file is not a notebook in format 4",
    ]
    assert sorted(capsys.readouterr().out.split()) == ["0", "1", "2"]


@contextmanager
def patched(monkeypatch: pytest.MonkeyPatch, **values: object) -> Iterator[None]:
    with monkeypatch.context() as patch:
        for name, value in values.items():
            patch.setattr(html_converter, name, value)
        yield


def hang(_: dict[str, Any]) -> str:
    while True:
        pass


def exhaust(_: dict[str, Any]) -> str:
    return "x" * 2**40


def crash(_: dict[str, Any]) -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


def recur(_: dict[str, Any]) -> str:
    return recur({})


@pytest.mark.parametrize(
    ("convert", "fault"),
    [
        (hang, "the conversion took more than 1 s of CPU time"),
        (exhaust, "the conversion needs more than 2048 MiB of memory"),
        (crash, "the conversion was killed"),
        (recur, "the conversion failed with RecursionError"),
        (lambda _: "x" * 33 * 2**20, "the page has more than 32 MiB"),
    ],
    ids=["time", "memory", "signal", "depth", "size"],
)
def test_limits_end_the_conversion_of_a_notebook_and_not_of_the_next(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, convert: Callable[[dict[str, Any]], str], fault: str
) -> None:
    def first_fails(document: dict[str, Any]) -> str:
        return "fine" if document["cells"] else convert(document)

    with patched(monkeypatch, MOST_SECONDS=1 if convert is hang else 60):
        found = results(monkeypatch, tmp_path, first_fails, notebook(), notebook(code("1")))
    assert found == [{"fault": fault}, {"html": "fine", "notes": []}]
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
