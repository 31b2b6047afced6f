"""Derives the cells of the project `inference` from its specifications: the axes, and what each cell needs.

The axes `model` and `config` advance together. Their values are only what identifies a cell: the name of the model, and
the given fields of the config. So a cell keeps its history when its cases or the description of its server change. The
field `inference.cells` contains the rest, by the name of the model and the name of the config.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from toolbox.config.configuration import Configuration
from toolbox.inference import case_files, specifications, suites
from toolbox.inference.case_files import Case
from toolbox.inference.specifications import Config, Frameworks, Specification, Specifications
from toolbox.model.errors import ConfigurationError, ConfigurationFaults

TESTS: Final = "tests"
FRAMEWORKS: Final = "frameworks"
BLOCK: Final = "inference"
IMAGE_TAG: Final = f"{BLOCK}.image_tag"
PROJECT: Final = "inference"
CLIENT: Final = Path(__file__).parents[1] / "inference_client"
"""The package that sends the cases on a target."""
_AXES: Final = ("model", "config")


class InferenceBlock(BaseModel):
    """The block `inference`.

    Args:
        image_tag: the tag that `{image_tag}` in the image of a framework stands for.
        concurrency: the number of requests that a worker sends at the same time.
        timeout: the time in seconds in which an answer must be complete.
        python: the Python on the targets that runs the worker.
        client: the folder of the worker, which is sent to the targets; derived from the place of Topgallant.
        cells: derived from `tests`; null in the file.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    image_tag: str | None = Field(default=None, pattern=re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$"))
    concurrency: int = Field(default=1, ge=1, le=1000)
    timeout: float = Field(default=120, gt=0, allow_inf_nan=False)
    python: str = Field(default="python3", min_length=1)
    client: str | None = None
    cells: dict[str, dict[str, Any]] | None = None


def derive(configuration: Configuration) -> dict[str, object]:
    """Return the axes and the descriptions of the cells, by the paths of their fields.

    Raises:
        ConfigurationError: the message names every impossible config and every fault of a case file.
    """
    block = configuration.block(BLOCK, InferenceBlock)
    tests = configuration.block(TESTS, Specifications).root
    frameworks = configuration.block(FRAMEWORKS, Frameworks).root
    faults: list[str] = []
    cells: dict[str, dict[str, Any]] = {}
    models, configs = [], []
    for index, test in enumerate(tests):
        path = f"{TESTS}[{index}]"
        cases = _cases(configuration, test, path, faults)
        for number, config in enumerate(test.configs):
            at = f"{path}.configs[{number}]"
            config_faults = list(specifications.faults(config, frameworks))
            faults += [_fault(configuration, f"{at}.{field}", fault) for field, fault in config_faults]
            if config_faults:
                continue
            try:
                cell = _cell(block, test, config, frameworks[config.deployment_framework], cases)
            except ValueError as error:
                faults.append(_fault(configuration, at, str(error)))
                continue
            cells.setdefault(test.model, {})[config.label] = cell
            models.append(test.model)
            configs.append(config.settings)
    if faults:
        raise ConfigurationFaults(faults)
    zipped = configuration.get("matrix.zip", default=None) or []
    return {
        "matrix.axes.model": models,
        "matrix.axes.config": configs,
        "matrix.zip": [*zipped, list(_AXES)],
        f"{BLOCK}.cells": cells,
        **({f"{BLOCK}.client": str(CLIENT)} if block.client is not None else {}),
    }


def _cases(configuration: Configuration, test: Specification, path: str, faults: list[str]) -> list[Case]:
    cases: list[Case] = []
    for index, name in enumerate(test.cases):
        try:
            cases += case_files.load(configuration.root / Path(name).expanduser(), shown=name)
        except ConfigurationError as error:
            where = f"{path}.cases[{index}]"
            faults += [f"{fault} (used by `{where}`, {configuration.location(where)})" for fault in error.faults]
    return cases


def _cell(
    block: InferenceBlock,
    test: Specification,
    config: Config,
    framework: specifications.Framework,
    cases: list[Case],
) -> dict[str, Any]:
    sent, expectations = suites.describe(
        cases, protocols=framework.protocols, shards=config.num_shard, streams=test.streams, compare=test.compare
    )
    server = specifications.server(framework, config, test.model)
    settings: Mapping[str, Any] = {
        "server": server,
        "cases": "cases.json",
        "concurrency": block.concurrency,
        "timeout": block.timeout,
    }
    return {
        "settings": settings,
        "cases": sent,
        "expectations": expectations,
        "pod": specifications.pod(framework, config, block.image_tag),
    }


def _fault(configuration: Configuration, path: str, fault: str) -> str:
    return f"{configuration.location(path)}: `{path}`: {fault}"
