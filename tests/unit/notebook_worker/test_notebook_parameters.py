"""A parameter that the tagged cell does not assign is found in notebooks of any language."""

from __future__ import annotations

import pytest

from toolbox.notebook_worker import notebook_parameters


def unknown(source: str, *parameters: str, language: str = "python") -> list[str]:
    """Return the parameters that a notebook with this tagged cell does not have."""
    return notebook_parameters.unknown(parameters, [source], language)[0]


@pytest.mark.parametrize(
    "source",
    [
        "alpha = 1",
        "alpha: int = 1",
        "alpha: int",
        "alpha = beta = 1",
        "beta, (alpha, *rest) = 1, (2, 3)",
        "if True:\n    alpha = 1  # alpa = 2",
        "try:\n    import torch\n    alpha = 'cuda'\nexcept ImportError:\n    alpha = 'cpu'",
        "for alpha in range(3):\n    pass",
        "print(alpha := 1)",
        "alpha = '''\n%matplotlib inline\n'''",
        "%matplotlib inline\n!pip list\nimport os\nos?\nalpha = 1",
        "%%time\nalpha = 1",
        "\n%%capture output\nalpha = 1",
        "%time alpha = 1",
        "alpha = !ls",
        "alpha = %env HOME",
        "pattern = '\\d'\nalpha = 1",
    ],
)
def test_a_variable_of_the_tagged_cell_is_a_parameter(source: str) -> None:
    assert unknown(source, "alpha", "alpa") == ["alpa"]


@pytest.mark.parametrize(
    "source",
    [
        "",
        "# alpha = 1",
        "'''\nalpha = 1\n'''",
        "print(alpha)",
        "alpha == 1",
        "model.alpha = 1",
        "config['alpha'] = 1",
        "def train(alpha=1):\n    alpha = 2",
        "class Config:\n    alpha = 1",
        "square = lambda alpha: alpha",
        "[alpha for alpha in range(3)]",
        "dict(alpha=1)",
        "%%bash\nalpha=1",
        "%%writefile config.py\nalpha = 1",
        "!alpha=1 make",
    ],
)
def test_what_is_not_a_variable_of_the_tagged_cell_is_no_parameter(source: str) -> None:
    assert unknown(source, "alpha") == ["alpha"]


@pytest.mark.parametrize(
    ("language", "source"),
    [
        ("r", "library(jsonlite)\nalpha.beta <- 1"),
        ("r", "1 -> alpha.beta"),
        ("julia", "alpha = 1; beta = 2"),
        ("scala", "val alpha: Int = 1 // beta"),
        ("powershell", "$alpha = 1; $beta = 2"),
        ("", "alpha = 1\nbeta = 2"),
        ("python", "print 'alpha', alpha.beta"),  # of Python 2, so the test fails anyway
    ],
)
def test_the_words_of_code_that_cannot_be_parsed_are_its_parameters(language: str, source: str) -> None:
    parameters = ("alpha.beta",) if language == "r" else ("alpha", "beta")
    assert unknown(source, *parameters, "alpa", language=language) == ["alpa"]


@pytest.mark.parametrize("comment", ["# alpha <- 1", "  // val alpha = 1", "-- alpha", "% alpha = 1"])
def test_a_line_that_is_a_comment_assigns_nothing(comment: str) -> None:
    assert unknown(f"beta = 1\n{comment}", "alpha", language="") == ["alpha"]


def test_names_are_compared_as_python_compares_them() -> None:
    assert not unknown("größe = 1\n\ufb01t = 2", "gro\u0308ße", "fit", "\ufb01t")


@pytest.mark.parametrize("source", ["(" * 100_000, "a" * (2 << 20), "x\0 = 1", "-" * 200_000 + "1", "9" * 5000])
def test_hostile_code_assigns_no_parameter(source: str) -> None:
    assert unknown(source, "alpha") == ["alpha"]


@pytest.mark.parametrize(
    ("tagged", "message"),
    [
        ([], "^has no cell with the tag `parameters`: add the tag to the cell that assigns the parameters$"),
        ([None], "^has the tag `parameters` on a cell without code"),
        (["alpha = 1", "alpha = 2"], "^has 2 cells with the tag `parameters`: leave the tag on one of them$"),
        ([None, "alpha = 1"], "^has 2 cells with the tag"),
    ],
)
def test_exactly_one_code_cell_must_have_the_tag(tagged: list[str | None], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        notebook_parameters.unknown(["alpha"], tagged, "python")
