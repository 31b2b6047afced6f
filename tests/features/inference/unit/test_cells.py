"""Specifications become cells, and every impossible config is reported before anything starts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from toolbox.config import contract
from toolbox.config.configuration import Configuration, Request
from toolbox.features.inference import cells
from toolbox.features.inference.specifications import Config, Framework, Frameworks
from toolbox.ground.model.errors import ConfigurationError
from toolbox.matrix import plan

CASES = "- {name: a, request: {requests: [{text: x}]}, response: {responses: [{text: y}]}}\n"
BASE = """
inference: {cells: null}
matrix: {axes: {model: null, config: null, test: [cases, load], target: null}, zip: [], target: null, settings: null}
frameworks:
  tiny:
    command: [serve, "--model={model}", "--shards={num_shard}", "--port={port}", "--grpc={grpc_port}"]
    arguments: {dtype_str: ["--dtype={dtype_str}"], flash_attention: [--flash], pt2_compile: [--compile]}
    env: {COMPILE: "{pt2_compile}"}
    protocols: [fmaas, openai]
    image: "tiny:{image_tag}"
    dtypes_on_cpu: [float32, float16]
    shards_share: true
  large: {url: "http://127.0.0.1:1", protocols: [openai]}
tests:
"""
TARGETS = """
targets:
  grid: {backend: kubernetes, labels: [pods]}
  box: {backend: ssh}
  other: {backend: kubernetes}
"""


@pytest.fixture
def configuration(tmp_path: Path) -> Any:
    """Return a function that returns a configuration with these configs of a model."""
    (tmp_path / "config").mkdir()
    (tmp_path / "cases.yaml").write_text(CASES)

    def load(*configs: str, cases: str = "cases.yaml", more: str = "", tag: str | None = "v1") -> Configuration:
        lines = [f"    - {config}\n" for config in configs]
        test = f"- model: org/m\n  cases: [{cases}]\n{more}  configs:\n{''.join(lines)}"
        file = tmp_path / "config" / "p.yaml"
        text = BASE.replace("{cells: null}", yaml.safe_dump({"cells": None, "image_tag": tag}, default_flow_style=True))
        file.write_text(text.lstrip() + test + TARGETS)
        return Configuration.load(Request(file, contracts=[Path("projects/inference/contracts").absolute()]))

    return load


def faults(configuration: Configuration) -> list[str]:
    """Return what is wrong with a configuration, without the path of its directory."""
    found: list[str] = []
    for check in (configuration.check_contracts, lambda: cells.derive(configuration)):
        try:
            check()
        except ConfigurationError as error:
            found += error.faults
    root = f"{configuration.root}/"
    return [fault.replace(f"{root}config/", "").replace(root, "") for fault in dict.fromkeys(found)]


def test_each_model_with_each_of_its_configs_is_a_cell(configuration: Any) -> None:
    derived = cells.derive(
        configuration("{deployment_framework: tiny}", "{deployment_framework: large, name: running}")
    )
    assert derived["matrix.axes.model"] == ["org/m", "org/m"]
    assert derived["matrix.axes.config"] == [
        {"deployment_framework": "tiny", "name": "tiny"},
        {"deployment_framework": "large", "name": "running"},
    ]
    assert derived["matrix.axes.test"] == ["cases", "cases"]
    assert derived["matrix.zip"] == [["model", "config", "test"]]
    assert derived.keys().isdisjoint({"matrix.metrics", "matrix.checks"})
    by_model: Any = derived["inference.cells"]
    assert list(by_model["org/m"]) == ["tiny", "running"]


def test_a_cell_has_its_server_its_cases_and_its_pod(configuration: Any) -> None:
    config = "{deployment_framework: tiny, dtype_str: float16, num_shard: 2, pt2_compile: true, resources: {gpu: null}}"
    by_model: Any = cells.derive(configuration(config))["inference.cells"]
    cell = by_model["org/m"]["tiny-float16-num_shard=2-pt2_compile-cpu"]["cases"]
    server = cell["settings"]["server"]
    assert server["command"] == [
        "serve", "--model=org/m", "--shards=2", "--port={port}", "--grpc={grpc_port}", "--dtype=float16", "--compile",
    ]  # fmt: skip
    assert server["env"] == {"COMPILE": "true"}
    assert cell["pod"] == {"resources": {"gpu": None}, "image": "tiny:v1"}
    assert [case["name"] for case in cell["cases"]["cases"]] == ["cases/a"]
    assert cell["expectations"]["expectations"]["cases/a"]["compare"] == [{"comparator": "exact"}]


def test_cases_of_a_protocol_that_a_server_does_not_speak_are_skipped(configuration: Any) -> None:
    by_model: Any = cells.derive(configuration("{deployment_framework: large}"))["inference.cells"]
    cell = by_model["org/m"]["large"]["cases"]
    assert cell["cases"]["cases"] == []
    assert cell["expectations"]["skipped"][0]["reason"] == "the server does not speak fmaas, only openai"


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ("{deployment_framework: tinny}", "deployment_framework`: unknown framework `tinny`: did you mean tiny?"),
        ("{deployment_framework: large, num_shard: 2}", "num_shard`: 2 shards need 2 GPUs, but `resources.gpu` is 1"),
        (
            "{deployment_framework: large, num_shard: 2, resources: {gpu: {mig_1g_10gb: 2}}}",
            "num_shard`: 2 shards need 2 whole GPUs, not MIG slices",
        ),
        (
            "{deployment_framework: tiny, resources: {gpu: {mig_1g_10gb: 1, gpu: 1}}}",
            "resources.gpu` is {'mig_1g_10gb': 1, 'gpu': 1}: 'gpu' is not a MIG slice such as mig_1g_10gb",
        ),
        (
            "{deployment_framework: large, flash_attention: true, resources: {gpu: null}}",
            "flash_attention`: flash attention needs a GPU, but `resources.gpu` is 0 or null",
        ),
        (
            "{deployment_framework: large, dtype_str: float16, resources: {gpu: 0}}",
            "dtype_str`: large has only float32 without a GPU, and `resources.gpu` is 0 or null",
        ),
        (
            "{deployment_framework: tiny, dtype_str: bfloat16, resources: {gpu: null}}",
            "dtype_str`: tiny has only float32, float16 without a GPU, and `resources.gpu` is 0 or null",
        ),
        ("{deployment_framework: large, quantize: gptq, resources: {gpu: null}}", "quantize`: gptq needs a GPU"),
        ("{}", "deployment_framework` is missing"),
        ("{deployment_framework: tiny, num_shards: 2}", "num_shards` is an unknown field: did you mean num_shard?"),
        ("{deployment_framework: tiny, num_shard: 0}", "num_shard` must be greater than or equal to 1, not 0"),
        ("{deployment_framework: tiny, dtype_str: int4}", "dtype_str` must be 'float32', 'float16' or 'bfloat16'"),
        ("{deployment_framework: tiny, max_new_tokens: 2048}", "leaves no room for an input"),
        ("{deployment_framework: tiny, resources: {request_cpu: 9, limit_cpu: 8}}", "is more than `limit_cpu` 8"),
        ("{deployment_framework: tiny, name: a/b}", "a name consists of"),
    ],
)
def test_an_impossible_config_is_named_with_its_line(configuration: Any, config: str, fault: str) -> None:
    (found,) = faults(configuration(config))
    assert found.startswith("p.yaml:18: `tests[0].configs[0]")
    assert fault in found


@pytest.mark.parametrize(
    "config",
    [
        "{deployment_framework: tiny, dtype_str: float16, num_shard: 2, resources: {gpu: null}}",
        "{deployment_framework: large, num_shard: 2, resources: {gpu: 2}}",
        "{deployment_framework: large, flash_attention: true, dtype_str: bfloat16}",
        "{deployment_framework: large, resources: {gpu: {mig_1g_10gb: 1}}}",
    ],
)
def test_a_possible_config_is_accepted(configuration: Any, config: str) -> None:
    assert cells.derive(configuration(config))


def test_all_faults_of_all_configs_and_case_files_are_reported_together(configuration: Any, tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("")
    (tmp_path / "wrong.yaml").write_text("- {name: a, requst: {}}")
    found = faults(
        configuration(
            "{deployment_framework: nothing}",
            "{deployment_framework: large, num_shard: 3, flash_attention: true, resources: {gpu: 0}}",
            cases="empty.yaml, wrong.yaml, none.yaml",
        )
    )
    assert [fault.partition(": ")[0] for fault in found] == [
        "empty.yaml",
        "wrong.yaml:1",
        "wrong.yaml:1",
        "the case file none.yaml does not exist (used by `tests[0].cases[2]`, p.yaml:16)",
        "p.yaml:18",
        "p.yaml:19",
        "p.yaml:19",
    ]
    assert found[0].endswith("not empty (used by `tests[0].cases[0]`, p.yaml:16)")


def test_two_configs_of_a_name_are_refused(configuration: Any) -> None:
    (found, *_) = faults(configuration("{deployment_framework: tiny}", "{deployment_framework: tiny}"))
    assert "several configs have the name tiny: give each of them a `name` of its own" in found


@pytest.mark.parametrize(
    "local",
    [
        {"matrix.target": "grid"},
        {"matrix.target": ["local", "pods"]},
        {"matrix.target": "@cell.config.machine"},
        {"matrix.settings": [{"when": {"model": "org/m"}, "target": "grid"}]},
        {"matrix.axes.target": ["own", "local"], "targets": {"own": {"backend": "of_a_workspace"}}},
    ],
)
def test_an_image_that_needs_a_tag_is_refused_without_one(
    configuration: Any, tmp_path: Path, local: dict[str, Any]
) -> None:
    (tmp_path / "config/p.local.yaml").write_text(yaml.safe_dump(local))
    (found,) = faults(configuration("{deployment_framework: tiny}", tag=None))
    assert "the image tiny:{image_tag} needs a tag: `inference run --image_tag=TAG`" in found
    assert cells.derive(configuration("{deployment_framework: large}", tag=None))


@pytest.mark.parametrize("value", [None, 7, "x", [None, 7], {"local": None}, {"local": {"labels": 7}}])
@pytest.mark.parametrize("path", ["targets", "matrix.settings", "matrix.target", "matrix.axes.target"])
def test_a_wrong_block_is_left_to_its_contract(configuration: Any, tmp_path: Path, path: str, value: object) -> None:
    (tmp_path / "config/p.local.yaml").write_text(yaml.safe_dump({path: value}))
    assert cells.derive(configuration("{deployment_framework: tiny}", tag=None))


@pytest.mark.parametrize("target", [None, "local", "box", ["box", "local"]])
def test_an_image_needs_no_tag_where_there_are_no_pods(configuration: Any, tmp_path: Path, target: Any) -> None:
    (tmp_path / "config/p.local.yaml").write_text(yaml.safe_dump({"matrix.target": target}))
    derived = cells.derive(configuration("{deployment_framework: tiny}", tag=None))
    (cell,) = derived["inference.cells"]["org/m"]["tiny"].values()  # type: ignore[index]
    assert cell["pod"] == {"resources": {}}


def test_the_local_file_may_add_a_framework(configuration: Any, tmp_path: Path) -> None:
    framework = {"url": "http://127.0.0.1:{port}", "protocols": ["openai"]}
    (tmp_path / "config/p.local.yaml").write_text(yaml.safe_dump({"frameworks.mine": framework}))
    loaded = configuration("{deployment_framework: mine}")
    assert loaded.location("frameworks.mine").endswith("p.local.yaml:1")
    (found,) = faults(loaded)
    assert found.startswith("p.local.yaml:1: `frameworks.mine` ")  # the entry is validated with its line


@pytest.mark.parametrize("path", ["frameworks", "targets", "machines", "runtimes"])
def test_mappings_of_names_are_open(path: str) -> None:
    projects = [Path(f"projects/{name}/contracts").absolute() for name in ("inference", "notebooks")]
    assert contract.is_open((path,), [plan.CONTRACTS, *projects])
    assert not contract.is_open((path, "x"), [plan.CONTRACTS, *projects])


@pytest.mark.parametrize("path", ["frameworks.mine.url", "inference.mine", "tests.mine", "mine", "targets.box.mine"])
def test_the_local_file_creates_no_other_fields(configuration: Any, tmp_path: Path, path: str) -> None:
    (tmp_path / "config/p.local.yaml").write_text(yaml.safe_dump({path: {"url": "x"}}))
    with pytest.raises(ConfigurationError, match=r"p\.local\.yaml:1: .*mine"):
        configuration("{deployment_framework: tiny}")


def test_an_entry_whose_name_yaml_reads_as_a_number_is_replaced(configuration: Any, tmp_path: Path) -> None:
    (tmp_path / "config/p.local.yaml").write_text(
        "frameworks: {1: {url: 'http://a', protocols: [openai]}}\nframeworks.1: x\n"
    )
    assert configuration("{deployment_framework: tiny}").written("frameworks") == {1: "x"}


def test_other_layers_create_no_entries(configuration: Any) -> None:
    loaded = configuration("{deployment_framework: tiny}")
    contracts = [Path("projects/inference/contracts").absolute()]
    request = Request(loaded.root / "config/p.yaml", overrides={"frameworks.mine": {}}, contracts=contracts)
    with pytest.raises(ConfigurationError, match=r"no field `frameworks\.mine`"):
        Configuration.load(request)


def test_the_comparators_of_a_specification_are_validated(configuration: Any) -> None:
    found = faults(configuration("{deployment_framework: tiny}", more="  compare: [{comparator: simlarity}]\n"))
    assert "unknown comparator `simlarity`: did you mean similarity?" in found[0]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "needs a `command`, a `url` or a `grpc`"),
        ({"command": ["serve"]}, "the protocol openai needs `{port}` in the `command`, or a `url`"),
        ({"command": ["{prot}", "{port}"]}, "no parameter `prot`: did you mean port?"),
        ({"url": "http://{hots}"}, "no parameter `hots`"),
        ({"url": "http://host:{port}"}, "the protocol openai needs `{port}` in the `command`"),
        ({"url": "u", "ca_file": "/ca.pem"}, "`ca_file` needs a `url` with https:// or a `grpc` with grpcs://"),
        ({"url": "u", "grpc": "host"}, "`grpc` must be HOST:PORT or grpcs://HOST:PORT"),
        ({"url": "u", "grpc": "h:1", "api_key_variable": "K"}, "`grpc` must be grpcs://h:1, because the API key"),
        ({"url": "u", "arguments": {"dtype": []}}, "no parameter `dtype`: did you mean dtype_str?"),
    ],
)
def test_a_framework_that_cannot_be_reached_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("{", r"\{").replace("?", r"\?")):
        Framework.model_validate({"protocols": ["openai"], **fields})


def test_the_worker_is_found_where_topgallant_is_installed() -> None:
    assert (cells.CLIENT / "__main__.py").is_file()
    loaded = Configuration.load(Request(Path("config/inference.yaml").absolute()))
    assert cells.derive(loaded)["inference.client"] == str(cells.CLIENT)
    assert cells.derive(loaded)["inference.kit"] == str(cells.KIT)


def test_the_default_resources_are_those_of_a_pod() -> None:
    resources = Config(deployment_framework="x").resources
    assert resources.requests() == {"cpu": "4", "memory": "32G"}
    assert resources.limits() == {"cpu": "8", "memory": "128G"}
    assert resources.gpus() == {"nvidia.com/gpu": 1}


def test_the_contracts_of_the_project_are_these_models() -> None:
    assert contract.files(Path("projects/inference/contracts").absolute()).keys() >= {("tests",), ("frameworks",)}


def test_a_framework_whose_parameter_the_config_lacks_is_refused(configuration: Any) -> None:
    tiny = configuration("{deployment_framework: tiny}")
    file = tiny.root / "config/p.yaml"
    file.write_text(file.read_text().replace('"--shards={num_shard}"', '"--dtype={dtype_str}"'))
    (found,) = faults(Configuration.load(Request(file, contracts=[Path("projects/inference/contracts").absolute()])))
    assert found.startswith("p.yaml:18: `tests[0].configs[0]")
    assert found.endswith("`: `tiny` needs the parameter `dtype_str`, which the config does not give")


def test_the_page_says_of_each_framework_how_it_was_tested() -> None:
    page = Path("docs/inference.md").read_text()
    example = yaml.safe_load(page.partition("```yaml\nframeworks:")[2].partition("```")[0])
    shipped = yaml.safe_load(Path("config/inference.yaml").read_text())["frameworks"]
    table = page.partition("| framework | tested |\n")[2].partition("\n\n")[0]
    named = {name for row in table.splitlines()[1:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert named == {*example, *shipped}
    assert Frameworks.model_validate(example)
