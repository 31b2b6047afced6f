"""A parameter that the tagged cell does not assign is found in notebooks of any language."""

from __future__ import annotations

import pytest

from toolbox.features.notebooks.worker import notebook_parameters
from toolbox.features.notebooks.worker.notebook_parameters import ParameterCell, ParameterFault

TAGGED = frozenset({"parameters"})


def faults(parameters: tuple[str, ...], *cells: ParameterCell, language: str = "python") -> list[ParameterFault]:
    """Return the parameters that have no effect on a notebook with these cells."""
    return notebook_parameters.faults(parameters, cells, language)


def unknown(source: str, *parameters: str, language: str = "python") -> list[str]:
    """Return the parameters that a notebook with this tagged cell does not have."""
    return [fault.parameter for fault in faults(parameters, ParameterCell(source, TAGGED), language=language)]


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


@pytest.mark.parametrize(
    "source", ["(" * 100_000, "a" * (2 << 20), "x\0 = 1", "\n" * 500_000 + "(", "-" * 200_000 + "1", "9" * 5000]
)
def test_hostile_code_assigns_no_parameter(source: str) -> None:
    assert unknown(source, "alpha") == ["alpha"]


@pytest.mark.parametrize(
    ("tagged", "message"),
    [
        ([], "has no cell with the tag `parameters`: add the tag to the cell that assigns the parameters"),
        ([None], "has the tag `parameters` on a cell without code"),
        (["alpha = 1", "alpha = 2"], "has 2 cells with the tag `parameters`: leave the tag on one of them"),
        ([None, "alpha = 1"], "has 2 cells with the tag"),
    ],
)
def test_exactly_one_code_cell_must_have_the_tag(tagged: list[str | None], message: str) -> None:
    cells = [ParameterCell(source, TAGGED) for source in tagged]
    (fault,) = faults(("alpha", "beta"), *cells)
    assert fault.parameter == ""
    assert fault.reason.startswith(message)


def test_the_reason_names_a_similar_parameter() -> None:
    cell = ParameterCell("alpha = 1\nsteps = 2", TAGGED)
    assert [fault.reason for fault in faults(("alpa", "x"), cell)] == [
        "has no parameter `alpa`: did you mean alpha?",
        "has no parameter `x`: its cell with the tag does not assign it",
    ]


def later(*sources: str, tags: frozenset[str] = frozenset()) -> list[str]:
    """Return the parameters that have no effect if these cells follow the tagged cell."""
    cells = [ParameterCell(source, tags) for source in sources]
    return [fault.parameter for fault in faults(("alpha",), ParameterCell("alpha = 1", TAGGED), *cells)]


@pytest.mark.parametrize(
    "sources",
    [
        ("alpha = 2", "print(alpha)"),
        ("# alpha is set here\nx = 1", "import os\nalpha: int = 2"),
        ("alpha, beta = 2, 3",),
        ("alpha = beta = 2",),
        ("from math import pi as alpha",),
        ("import alpha.beta",),
        ("for alpha in range(3):\n    print(alpha)",),
        ("for beta, alpha in [(1, 2)]: pass",),
        ("(alpha := 1)",),
        ("del alpha",),
        ("def alpha(n):\n    return alpha(n - 1)",),
        ("class alpha:\n    x = 1",),
        ("with open('x') as alpha:\n    alpha.read()",),
        ("%%time\nalpha = 1",),
        ("!ls\nalpha = 1",),
        ("alpha = !ls",),
        ("class Model:\n    def alpha(self): pass", "alpha = 2"),
    ],
)
def test_a_parameter_that_is_replaced_or_deleted_before_it_is_read_has_no_effect(sources: tuple[str, ...]) -> None:
    assert later(*sources) == ["alpha"]


@pytest.mark.parametrize(
    "source",
    [
        "print(alpha)\nalpha = 2",
        "alpha = alpha * 2",
        "alpha += 1",
        "alpha = max(1, alpha)",
        "if debug:\n    alpha = 2",
        "def read():\n    return alpha\nalpha = 2",
        "@scaled(alpha)\ndef read(): pass\nalpha = 2",
        "frame.query('x > @alpha')\nalpha = 2",
        "values[alpha] = 2\nalpha = 2",
        "!echo {alpha}\nalpha = 2",
        "model.alpha = 3",
        "alphabet = 2",
        "def train(alpha):\n    alpha = 2",
        "import model.alpha",
        "from alpha import beta",
        "from model import alpha as beta",
        "for alpha in values: pass",
        "for alpha in []: pass",
        "for alpha in range(0): pass",
        "for alpha in range(alpha): pass",
        "for x in range(3):\n    alpha = x",
        "with suppress(OSError):\n    alpha = 1",
        "with suppress(OSError), open('x') as alpha: pass",
        "with open(alpha) as alpha: pass",
        "(alpha := alpha + 1)",
        "del values[alpha]",
        "def alpha(x=alpha): pass",
        "@scaled(alpha)\nclass alpha: pass",
        "class alpha:\n    x = alpha",
        "squares = [0 for alpha in range(3)]",
        "beta = beta or (alpha := 1)",
        "%%time\nprint(alpha)",
        "%%capture alpha\nalpha = 2",
        "%%bash -s $alpha\nalpha=2",
        "x = !ls {alpha}\nalpha = 2",
        "try:\n    import alpha\nexcept ImportError: pass",
    ],
)
def test_a_parameter_that_may_be_read_has_an_effect(source: str) -> None:
    assert later(source, "alpha = 3" if "alpha = 2" in source else "print(alpha)") == []


@pytest.mark.parametrize("tag", ["injected-parameters", "skip"])
def test_a_cell_that_is_not_executed_assigns_nothing(tag: str) -> None:
    assert later("alpha = 2", tags=frozenset({tag})) == []
