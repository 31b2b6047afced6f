"""The converter ends for every notebook: with HTML, or with the reason why there is none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.features.notebooks.fakes.notebook_results import code, display, executed, markdown, notebook, stream

# Programs of their own, as in a run: the limits concern all memory of a process, also what other tests left in it.
CONVERTER = ["toolbox.features.notebooks.html_converter"]
FAILING = ["tests.features.notebooks.fakes.failing_conversions"]


def results(directory: Path, *documents: object, program: list[str] = CONVERTER) -> list[dict[str, Any]]:
    """Return the results of the program for some notebooks."""
    jobs = []
    for number, document in enumerate(documents):
        source = directory / f"{number}.ipynb"
        source.write_text(document if isinstance(document, str) else json.dumps(document))
        jobs.append([str(source), str(directory / f"{number}.json")])
    lines = "".join(f"{json.dumps(job)}\n" for job in jobs)
    done = subprocess.run([sys.executable, "-m", *program], input=lines, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == [str(number) for number in range(len(documents))]
    return [json.loads(Path(target).read_text()) for _, target in jobs]


def test_sources_outputs_and_tracebacks_are_in_the_html(tmp_path: Path) -> None:
    document = executed("print('2 < 3')", "raise ValueError('no <b>data</b>')")
    document["cells"].insert(0, markdown("# Title\n\n| a |\n|---|\n| 1 |\n\n`x < y`"))
    (result,) = results(tmp_path, document)
    for part in ("<h1>Title</h1>", "<th>a</th>", "x &lt; y", "2 &lt; 3", "no &lt;b&gt;data&lt;/b&gt;", "In&nbsp;[1]:"):
        assert part in result["html"]
    assert result["notes"] == []


def test_an_image_of_an_output_and_an_attachment_are_shown(tmp_path: Path) -> None:
    attachments = {"a.png": {"image/png": "QUFB"}}
    cells = [code("1", display(image_png="QkJC")), markdown("![](attachment:a.png)", attachments=attachments)]
    (result,) = results(tmp_path, notebook(*cells))
    assert 'src="data:image/png;base64,QkJC"' in result["html"]
    assert 'src="data:image/png;base64,QUFB"' in result["html"]


def test_hostile_parts_do_not_reach_the_html(tmp_path: Path) -> None:
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
    (result,) = results(tmp_path, notebook(*cells, **metadata))
    html = result["html"].lower()
    assert "<script" not in html
    assert "<style" not in html
    assert "<img" not in html
    assert "href" not in html


def test_each_notebook_that_cannot_be_shown_has_a_reason(tmp_path: Path) -> None:
    good, *bad = results(tmp_path, notebook(code("1")), "{", '{"nbformat": 3}')
    assert "html" in good
    assert [each["fault"] for each in bad] == [
        "the notebook cannot be read: JSONDecodeError",
        "the file is not a notebook in format 4",
    ]


@pytest.mark.parametrize(
    ("conversion", "fault"),
    [
        ("hang", "the conversion took more than 1 s of CPU time"),
        ("exhaust", "the conversion needs more than 2048 MiB of memory"),
        ("crash", "the conversion was killed"),
        ("recur", "the conversion failed with RecursionError"),
        ("grow", "the page has more than 32 MiB"),
    ],
)
def test_limits_end_the_conversion_of_a_notebook_and_not_of_the_next(
    tmp_path: Path, conversion: str, fault: str
) -> None:
    found = results(tmp_path, notebook(), notebook(code("1")), program=[*FAILING, conversion])
    assert found == [{"fault": fault}, {"html": "fine", "notes": []}]
