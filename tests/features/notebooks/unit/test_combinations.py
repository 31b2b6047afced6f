"""Runtimes and machines become the cells of a matrix, and what is wrong or impossible is named with its line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from toolbox.config.configuration import Configuration, Request
from toolbox.features.notebooks import combinations, runtime_files
from toolbox.features.notebooks.runtimes import Notebook
from toolbox.features.notebooks.worker.notebook_settings import Settings
from toolbox.features.notebooks.worker.time_limits import worker_seconds
from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.model.secrets import Secret

Load = Callable[..., Configuration]
CONTRACTS = [Path("projects/notebooks/contracts").absolute()]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Return a function that returns a configuration of the blocks, in a workspace with notebooks and checks."""
    for name in (
        "a/one.ipynb",
        "a/two words.ipynb",
        "a/.ipynb_checkpoints/one.ipynb",
        "b/one.ipynb",
        "a/data.csv",
        "top.ipynb",
    ):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")
    checks = tmp_path / "projects" / "notebooks" / "checks"
    checks.mkdir(parents=True)
    for name in ("disk.sh", "torch.py", "_shared.py", "notes.md"):
        (checks / name).write_text('promises.get("packages"), promises["threads"], promises["device"]\n')
    monkeypatch.setenv("TOPGALLANT_WORKSPACE", str(tmp_path))
    monkeypatch.setattr("toolbox.ground.system.places.builtin_root", lambda: tmp_path / "nothing")
    (tmp_path / "config").mkdir()

    def call(text: str, *, notebooks: str = "{checks: []}", targets: str = "{}", matrix: str = "") -> Configuration:
        file = tmp_path / "config" / "p.yaml"
        axes = "axes: {runtime: null, machine: null}, skip: [], settings: [], owners: [], metrics: {}"
        file.write_text(f"{text.strip()}\nnotebooks: {notebooks}\ntargets: {targets}\nmatrix: {{{axes}{matrix}}}\n")
        return Configuration.load(Request(file, contracts=CONTRACTS))

    return call


def derived(configuration: Configuration) -> dict[str, Any]:
    """Return the derived values by path."""
    return dict(combinations.derive(configuration))


def faults(configuration: Configuration) -> list[str]:
    """Return what is wrong with a configuration, without the path of its directory."""
    found: list[str] = []
    for check in (configuration.check_contracts, lambda: combinations.derive(configuration)):
        try:
            check()
        except ConfigurationError as error:
            found += error.faults
    root = f"{configuration.root}/"
    return [fault.replace(f"{root}config/", "").replace(root, "") for fault in dict.fromkeys(found)]


def fault(configuration: Configuration) -> str:
    """Return the only fault of a configuration."""
    (found,) = faults(configuration)
    return found


def reasons(configuration: Configuration) -> dict[str, str]:
    """Return the reasons of the combinations that are left out, by runtime and machine."""
    entries = derived(configuration)["matrix.skip"]
    return {f"{entry['when']['runtime']} on {entry['when']['machine']}": entry["reason"] for entry in entries}


BOTH = """
runtimes:
  plain: {requirements: [numpy]}
  r-4.5: {kernel: ir, owner: ada}
machines:
  small: {target: local, cpus: 1, memory_gb: 0.5}
  large: {target: local}
"""


def test_each_runtime_on_each_machine_is_a_combination_with_short_names(load: Load) -> None:
    values = derived(load(BOTH))
    assert values["matrix.axes.runtime"] == ["plain", "r-4.5"]
    assert values["matrix.axes.machine"] == ["small", "large"]
    assert values["matrix.skip"] == []
    assert values["matrix.owners"] == [{"when": {"runtime": "r-4.5"}, "owner": "ada"}]


def test_the_settings_of_a_combination_are_those_that_the_worker_reads(load: Load) -> None:
    text = """
runtimes:
  plain:
    requirements: [numpy, "# a comment"]
    promises: {packages: {numpy: "1.26"}, threads: 2}
    without_checks: {disk: no disk}
    notebooks:
      - a/one.ipynb
      - {file: b/one.ipynb, name: other, parameters: {n: 1}, timeout: 30, ignore: ['0x\\w+', {regex: a, replace: b}]}
machines: {small: {target: local, cpus: 2, memory_gb: 0.5, promises: {packages: {scipy: "1"}, threads: 1}}}
"""
    cell = derived(load(text, notebooks="{checks: null, check_timeout: 5}"))["notebooks.cells"]["plain"]["small"]
    settings = Settings.from_json(cell["settings"])
    assert settings.runtime.requirements == ("numpy",)
    assert (settings.limits.cpus, settings.limits.memory_bytes) == (2, 500_000_000)
    assert [(check.name, check.file, check.timeout, check.skip) for check in settings.checks] == [
        ("disk", "checks/disk.sh", 5, "no disk"), ("torch", "checks/torch.py", 5, None),
    ]  # fmt: skip
    assert settings.promises == {
        "packages": {"numpy": "1.26", "scipy": "1"}, "threads": 1, "cpus": 2, "memory_gb": 0.5,
    }  # fmt: skip
    first, second = settings.notebooks
    assert (first.name, first.cell_timeout, first.timeout) == ("one", 600, 1800)
    assert (second.name, second.parameters, second.cell_timeout, second.timeout) == ("other", {"n": 1}, 30, 30)
    assert second.ignore == (("0x\\w+", ""), ("a", "b"))
    assert not settings.uses_server


def test_a_secret_cannot_be_a_parameter_of_a_notebook() -> None:
    with pytest.raises(ValidationError, match=r"executed notebooks contain it: use `matrix\.workload\.env`") as caught:
        Notebook(file="a/one.ipynb", parameters={"token": Secret("hunter2")})  # type: ignore[dict-item]
    assert "hunter2" not in str(caught.value)


def test_the_directories_of_notebooks_are_sent_under_names_of_their_own(load: Load) -> None:
    runtime = "{kernel: k, notebooks: [a/one.ipynb, {file: b/one.ipynb, name: two}]}"
    cell = derived(load(f"runtimes: {{x: {runtime}}}\nmachines: {{m: {{target: local}}}}"))["notebooks.cells"]["x"]["m"]
    sent = {Path(path).name: name for name, path in cell["files"].items()}
    assert sent.keys() == {"a", "b", "worker", "kit"}
    files = [book["file"] for book in cell["settings"]["notebooks"]]
    assert files == [f"{sent['a']}/one.ipynb", f"{sent['b']}/one.ipynb"]


def test_notebooks_are_metrics_of_the_runtimes_that_have_them(load: Load) -> None:
    books = "[a/one.ipynb, {file: b/one.ipynb, name: two, cell_metrics: true}, {file: a/*words*, manual: x}]"
    configuration = load(f"runtimes: {{x: {{kernel: k, notebooks: {books}}}}}\nmachines: {{m: {{target: local}}}}")
    cell: dict[str, Any] = {
        "cell_type": "code",
        "id": "train",
        "metadata": {},
        "outputs": [],
        "execution_count": None,
        "source": "1",
    }
    book = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (configuration.root / "b/one.ipynb").write_text(json.dumps(book))
    metrics = derived(configuration)["matrix.metrics"]
    assert list(metrics) == [
        "one.seconds", "one.peak_memory", "two.seconds", "two.peak_memory", "two.train.seconds",
        "two.train.peak_memory",
    ]  # fmt: skip
    assert metrics["one.seconds"]["when"] == {"runtime": ["x"]}
    (configuration.root / "b/one.ipynb").write_text("{")


def test_a_notebook_whose_cells_cannot_be_measured_is_a_fault_of_its_entry(load: Load) -> None:
    entry = "file: b/one.ipynb\n        cell_metrics: true"
    configuration = load(
        f"runtimes:\n  x:\n    kernel: k\n    notebooks:\n      - a/one.ipynb\n      - {entry}\n        name: two\n"
        "machines: {m: {target: local}}"
    )
    (configuration.root / "b/one.ipynb").write_text("{")
    assert fault(configuration).startswith("p.yaml:7: `runtimes.x.notebooks[1].cell_metrics`: ")
    assert fault(configuration).endswith("b/one.ipynb is not JSON, so it is not a notebook")


def test_a_pattern_stands_for_all_notebooks_but_not_for_copies_in_hidden_directories(load: Load) -> None:
    text = "runtimes: {x: {kernel: k, notebooks: ['a/**/*.ipynb']}}\nmachines: {m: {target: local}}"
    cell = derived(load(text))["notebooks.cells"]["x"]["m"]
    assert [book["name"] for book in cell["settings"]["notebooks"]] == ["one", "two-words"]


def test_names_may_be_in_any_language(load: Load) -> None:
    runtime = "größe: {kernel: k, notebooks: ['c/*.ipynb', {file: a/one.ipynb, name: डेटा}]}"
    configuration = load(f"runtimes: {{{runtime}}}\nmachines: {{maschine-ß: {{target: local}}}}")
    (configuration.root / "c").mkdir()
    for name in ("数据 1", "U\u0308bung", "\U0001f600"):
        (configuration.root / "c" / f"{name}.ipynb").write_text("{}")
    cell = derived(configuration)["notebooks.cells"]["größe"]["maschine-ß"]
    names = {book["name"] for book in cell["settings"]["notebooks"]}
    assert names == {"数据-1", "\u00dcbung", "notebook", "डेटा"}


def test_the_time_limit_of_a_cell_is_the_longest_time_within_the_limits_of_its_tests(load: Load) -> None:
    text = """
runtimes:
  x: {kernel: k, notebooks: [{file: a/one.ipynb, timeout: 100}, {file: b/one.ipynb, name: two, manual: mount it}]}
machines: {m: {target: local}, slow: {target: local, timeouts: {run: 5000, silence: 60}}, h: {target: hub}}
"""
    notebooks = "{checks: null, check_timeout: 5, environment_timeout: 10}"
    entries = derived(load(text, notebooks=notebooks, targets="{hub: {backend: jupyterhub}}"))["matrix.settings"]
    local, on_hub = (
        worker_seconds(environments=10, checks=[5, 5], notebooks=[100], uses_server=uses_server)
        for uses_server in (False, True)
    )
    assert entries == [
        {"when": {"runtime": "x"}, "timeouts": {"run": local}},
        {"when": {"runtime": "x", "machine": ["h"]}, "timeouts": {"run": on_hub}},
        {"when": {"machine": "m"}, "target": "local"},
        {"when": {"machine": "slow"}, "target": "local", "timeouts": {"run": 5000, "silence": 60}},
        {"when": {"machine": "h"}, "target": "hub"},
    ]


def test_processors_and_gpus_are_resources_only_where_something_limits_them(load: Load) -> None:
    text = "runtimes: {x: {kernel: k}}\nmachines: {m: {target: big, cpus: 4, gpus: 1, memory_gb: 1.5}}"
    targets = "{big: {backend: local, capacity: {cpu: 8, memory_gb: 16}}}"
    assert derived(load(text, targets=targets))["matrix.settings"][-1]["resources"] == {"cpu": 4, "memory_gb": 2}
    entry = derived(load(text, targets=targets, matrix=", pools: {gpu: 2}"))["matrix.settings"][-1]
    assert entry["resources"] == {"cpu": 4, "gpu": 1, "memory_gb": 2}


def test_entries_of_the_file_are_kept_and_win(load: Load) -> None:
    configuration = load(BOTH)
    skip, setting = {"when": {"machine": "small"}, "reason": "broken"}, {"when": {}, "timeouts": {"run": 9}}
    for path, value in (("matrix.skip", [skip]), ("matrix.settings", [setting])):
        configuration = configuration.replaced(path, value, layer="a test")
    values = derived(configuration)
    assert values["matrix.skip"][0] == skip
    assert values["matrix.settings"][-1] == setting


IMPOSSIBLE = """
runtimes:
  image: {image: "a:1"}
  env: {requirements: [numpy]}
  cuda: {kernel: k, promises: {device: cuda}}
machines:
  here: {target: local}
  hub: {target: hub, gpus: 1}
  pods: {target: pods, runtimes: [env, image]}
"""


def test_impossible_combinations_are_left_out_with_a_reason(load: Load) -> None:
    targets = "{hub: {backend: jupyterhub}, cluster: {backend: kubernetes, labels: [pods]}}"
    assert reasons(load(IMPOSSIBLE, targets=targets)) == {
        "image on here": "image is an image, and targets with the backend local have no containers",
        "env on hub": "env needs an environment, which a hub does not make: use an image or a kernel",
        "cuda on here": "cuda promises a GPU, and the machine has none",
        "cuda on pods": "the machine pods is only for other runtimes",
    }


def test_a_hub_sets_the_limits_and_its_kernels_run_on_a_server(load: Load) -> None:
    text = "runtimes: {x: {kernel: k}}\nmachines: {m: {target: hub, cpus: 4, memory_gb: 8}}"
    cell = derived(load(text, targets="{hub: {backend: jupyterhub}}"))["notebooks.cells"]["x"]["m"]
    settings = Settings.from_json(cell["settings"])
    assert settings.uses_server
    assert (settings.limits.cpus, settings.limits.memory_bytes) == (None, None)
    assert settings.promises == {"cpus": 4, "memory_gb": 8}


def test_a_server_of_a_hub_gets_the_image_of_the_runtime(load: Load) -> None:
    text = "runtimes: {x: {image: 'a:1'}, y: {kernel: k}}\nmachines: {m: {target: hub}}"
    cells = derived(load(text, targets="{hub: {backend: jupyterhub}}"))["notebooks.cells"]
    assert [cells[name]["m"]["server"] for name in "xy"] == [{"options": {"image": "a:1"}}, {}]


def test_a_pod_has_the_limits_of_the_machine_and_leaves_memory_to_the_worker(load: Load) -> None:
    text = "runtimes: {x: {image: 'a:1'}}\nmachines: {m: {target: pods, cpus: 2, memory_gb: 4, gpus: 1}}"
    cell = derived(load(text, targets="{pods: {backend: kubernetes}}"))["notebooks.cells"]["x"]["m"]
    resources = {"request_cpu": 2, "limit_cpu": 2, "request_memory_gb": 4, "limit_memory_gb": 4, "gpu": 1}
    assert cell["pod"] == {"image": "a:1", "resources": resources}
    assert cell["settings"]["limits"]["memory_bytes"] == 3_750_000_000


@pytest.mark.parametrize(
    ("runtime", "expected"),
    [
        ("{}", "p.yaml:2: `runtimes.x` is {}: a runtime needs an `image`, a `kernel` or `requirements`"),
        (
            "{image: a, requirements: [b]}",
            "`requirements` make an environment with a kernel of its own: remove `image`",
        ),
        ("{kernel: k, python: python3.12}", "`python` is the interpreter of an environment: it needs `requirements`"),
        ("{kernel: ../k}", "p.yaml:2: `runtimes.x.kernel` is '../k': a name consists of at most 80 letters"),
        ("{kernel: k, notebook: []}", "p.yaml:2: `runtimes.x.notebook` is an unknown field: did you mean notebooks?"),
        ("{kernel: k, notebooks: [a/no.ipynb]}", "p.yaml:2: `runtimes.x.notebooks[0]`: a/no.ipynb does not exist"),
        ("{kernel: k, notebooks: [a/data.csv]}", "a/data.csv is not a notebook: its name does not end in .ipynb"),
        (
            "{kernel: k, notebooks: [top.ipynb]}",
            "top.ipynb is in a directory that contains the workspace or its runs",
        ),
        ("{kernel: k, notebooks: ['c/*']}", "p.yaml:2: `runtimes.x.notebooks[0]`: c/* matches no notebook"),
        (
            "{kernel: k, notebooks: [{file: 'a/*', name: n}]}",
            "`a/*` matches 2 notebooks, which cannot all have the name n",
        ),
        (
            "{kernel: k, notebooks: [a/one.ipynb, b/one.ipynb]}",
            "`runtimes.x.notebooks`: several notebooks have the name one: a/one.ipynb, b/one.ipynb: give them a",
        ),
        (
            "{kernel: k, notebooks: [{file: a/one.ipynb, cell_timeout: 20, timeout: 10}]}",
            "`cell_timeout` 20 s is longer than `timeout` 10 s",
        ),
        (
            "{kernel: k, notebooks: [{file: a/one.ipynb, ignore: ['(']}]}",
            "`runtimes.x.notebooks[0].ignore[0]` is '(': not a regular expression",
        ),
        (
            "{kernel: k, notebooks: [{file: a/one.ipynb, parameters: {day: 2026-01-02}}]}",
            "`runtimes.x.notebooks[0].parameters.day`",
        ),
        (
            "{kernel: k, notebooks: [{file: a/one.ipynb, parameters: {'x = 1; y': 1}}]}",
            "is 'x = 1; y': the name of a parameter is the name of a variable of the notebook",
        ),
        ("{kernel: k, promises: {day: 2026-01-02}}", "p.yaml:2: `runtimes.x.promises.day`"),
        ("{kernel: k, promises: {share: .nan}}", "p.yaml:2: `runtimes.x.promises.share`"),
        (f"{{kernel: k, notebooks: [{'n' * 5000}.ipynb]}}", "does not exist"),
        (f"{{requirements: {'n' * 5000}.txt}}", "cannot be read: File name too long"),
        ("{kernel: k, notebooks: [~no-such-user/one.ipynb]}", "is in the home directory of an unknown user"),
        ("{requirements: [-r more.txt]}", "'-r more.txt' refers to a file, which does not exist on the target"),
        ("{requirements: [./wheel.whl]}", "'./wheel.whl' refers to a file, which does not exist on the target"),
        ("{requirements: no.txt}", "p.yaml:2: `runtimes.x.requirements`: no.txt cannot be read: No such file"),
        (
            "{kernel: k, promises: {packges: {numpy: '1'}}}",
            "p.yaml:2: `runtimes.x.promises.packges`: no check reads the promise `packges`: did you mean packages?",
        ),
        (
            "{kernel: k, without_checks: {dsk: full}}",
            "p.yaml:2: `runtimes.x.without_checks.dsk`: no check `dsk`: did you mean disk?",
        ),
    ],
)  # fmt: skip
def test_a_fault_of_a_runtime_is_named_with_its_line(load: Load, runtime: str, expected: str) -> None:
    text = f"runtimes:\n  x: {runtime}\nmachines: {{m: {{target: local}}}}"
    assert expected in fault(load(text, notebooks="{checks: [disk.sh]}"))


TAGGED = {"cell_type": "code", "metadata": {"tags": ["parameters"]}, "source": ["alpha = 1\n", "n = 2"]}


def notebook(*cells: dict[str, Any], language: str = "python") -> str:
    """Return the text of a notebook with these cells."""
    metadata = {"kernelspec": {"name": "k", "display_name": "K", "language": language}}
    return json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5})


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (notebook(TAGGED), ".alpa`: a/one.ipynb has no parameter `alpa`: did you mean alpha?"),
        (notebook(TAGGED, language="R"), ".alpa`: a/one.ipynb has no parameter `alpa`: did you mean alpha?"),
        (notebook({**TAGGED, "metadata": {}}), "`: a/one.ipynb has no cell with the tag `parameters`: add the tag to"),
        (notebook({**TAGGED, "cell_type": "raw"}), "`: a/one.ipynb has the tag `parameters` on a cell without code"),
        (notebook(TAGGED, TAGGED), "`: a/one.ipynb has 2 cells with the tag `parameters`: leave the tag on one"),
    ],
)
def test_a_parameter_that_a_notebook_does_not_have_is_named_before_the_run(
    load: Load, content: str, expected: str
) -> None:
    text = "{kernel: k, notebooks: [{file: a/one.ipynb, parameters: {n: 3, alpa: 9}}]}"
    configuration = load(f"runtimes: {{x: {text}}}\nmachines: {{m: {{target: local}}}}")
    (configuration.root / "a/one.ipynb").write_text(content)
    assert fault(configuration).startswith(f"p.yaml:1: `runtimes.x.notebooks[0].parameters{expected}")


@pytest.mark.parametrize("content", ["{", notebook(TAGGED)])
@pytest.mark.parametrize("manual", ["", ", manual: mount it"])
def test_a_notebook_that_cannot_be_read_or_is_not_executed_is_no_fault(load: Load, content: str, manual: str) -> None:
    name = "alpha" if content != "{" and not manual else "alpa"
    text = f"{{kernel: k, notebooks: [{{file: a/one.ipynb, parameters: {{{name}: 9}}{manual}}}]}}"
    configuration = load(f"runtimes: {{x: {text}}}\nmachines: {{m: {{target: local}}}}")
    (configuration.root / "a/one.ipynb").write_text(content)
    assert not faults(configuration)


X_RUNS_ONE = "runtimes: {x: {kernel: k, notebooks: [a/one.ipynb]}}\nmachines: {m: {target: local}}"


def test_a_directory_of_a_notebook_that_cannot_be_sent_is_named(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    configuration = load(X_RUNS_ONE)
    data = configuration.root / "a/more/data"
    data.parent.mkdir()
    os.mkfifo(data)
    assert "one.ipynb is in a directory that contains 'data', which is not a regular file" in fault(configuration)
    data.unlink()
    with data.open("wb") as file:
        file.truncate(3 * 10**9)
    assert "one.ipynb is in a directory that contains more than 2 GB" in fault(configuration)
    data.unlink()
    assert not faults(configuration)
    monkeypatch.setattr(runtime_files, "_MAX_SENT_FILES", 2)
    assert "one.ipynb is in a directory that contains more than 2 files" in fault(configuration)


def test_a_notebook_that_is_a_link_out_of_its_directory_is_refused(load: Load) -> None:
    configuration = load(X_RUNS_ONE)
    notebook = configuration.root / "a/one.ipynb"
    notebook.unlink()
    notebook.symlink_to("two words.ipynb")
    assert not faults(configuration)
    notebook.unlink()
    notebook.symlink_to("../b/one.ipynb")
    assert "one.ipynb is a symbolic link to a file that is not sent to targets" in fault(configuration)


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        ("{cpus: 1}", "p.yaml:3: `machines.m.target` is missing"),
        ("{target: here}", "p.yaml:3: `machines.m.target`: no target `here`: the targets and labels are hub, local"),
        ("{target: local, runtimes: [y]}", "p.yaml:3: `machines.m.runtimes[0]`: no runtime `y`: the runtimes are x"),
        ("{target: local, cpus: 0}", "p.yaml:3: `machines.m.cpus` must be greater than or equal to 1, not 0"),
        ("{target: local, memory_gb: 0.01}", "p.yaml:3: `machines.m.memory_gb` must be greater than or equal to 0.05"),
        ("{target: [local, hub]}", "`machines.m.target`: only some of the targets have the backend jupyterhub"),
        ("{target: local, without_checks: {dsk: x}}", "no check `dsk`: did you mean disk?"),
        (
            "{target: local, timeouts: {run: 60}}",
            "the environment, the checks and the notebooks of x may take 1210 s within their time limits",
        ),
    ],
)
def test_a_fault_of_a_machine_is_named_with_its_line(load: Load, machine: str, expected: str) -> None:
    text = f"runtimes: {{x: {{kernel: k}}}}\nmachines:\n  m: {machine}"
    notebooks = "{checks: [disk.sh], environment_timeout: 900}"
    assert expected in fault(load(text, notebooks=notebooks, targets="{hub: {backend: jupyterhub}}"))


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ("null", ["disk.sh", "torch.py"]),
        ("[torch.py]", ["torch.py"]),
        ("[torch.py, b/own.sh]", ["torch.py", "own.sh"]),
    ],
)
def test_checks_are_those_of_the_folder_or_those_that_are_named(load: Load, chosen: str, expected: list[str]) -> None:
    configuration = load(
        "runtimes: {x: {kernel: k}}\nmachines: {m: {target: local}}", notebooks=f"{{checks: {chosen}}}"
    )
    (configuration.root / "b/own.sh").write_text("")
    cell = derived(configuration)["notebooks.cells"]["x"]["m"]
    assert [check["file"] for check in cell["settings"]["checks"]] == [f"checks/{name}" for name in expected]


def test_an_unknown_check_is_named_with_its_line(load: Load) -> None:
    text = "runtimes: {x: {kernel: k}}\nmachines: {m: {target: local}}"
    assert fault(load(text, notebooks="{checks: [disc.sh]}")) == (
        "p.yaml:3: `notebooks.checks`: no check `disc.sh`: did you mean disk.sh?"
    )


def test_both_checks_with_the_same_name_are_named(load: Load) -> None:
    text = "runtimes: {x: {kernel: k}}\nmachines: {m: {target: local}}"
    configuration = load(text, notebooks="{checks: [a/own.sh, b/own.sh]}")
    for name in "ab":
        (configuration.root / name / "own.sh").write_text("")
    assert fault(configuration).endswith("two checks have the name own.sh: a/own.sh and b/own.sh")


def test_requirements_may_be_in_a_file_with_comments_and_continued_lines(load: Load) -> None:
    configuration = load("runtimes: {x: {requirements: r.txt}}\nmachines: {m: {target: local}}")
    content = "# all\nnumpy==1.26 \\\n  --hash=sha256:00\n\nscipy  # for fits\ntool @ https://x.test/t.zip#sha256=0\n"
    (configuration.root / "r.txt").write_text(content)
    cell = derived(configuration)["notebooks.cells"]["x"]["m"]
    assert cell["settings"]["runtime"]["requirements"] == [
        "numpy==1.26    --hash=sha256:00", "scipy", "tool @ https://x.test/t.zip#sha256=0",
    ]  # fmt: skip
