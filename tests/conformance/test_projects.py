"""Requirements for every project: its configuration, presets, command arguments and phases fit together."""

from __future__ import annotations

import re

import pytest

from toolbox.config import document, presets
from toolbox.config.command_args import SET_AT_RUNTIME, Template
from toolbox.config.configuration import Configuration, Request
from toolbox.ground.interface import registry, signature
from toolbox.ground.system import places
from toolbox.orchestration import from_config, projects

PROJECTS = {name: projects.find(name) for name in places.projects()}


def load(name: str, *applied: str) -> Configuration:
    """Return the configuration of a project, with the values that the project derives."""
    files = PROJECTS[name]
    return projects.derived(files, Configuration.load(Request(files.config, applied, contracts=files.contracts)))


PRESETS = {name: presets.names(document.load(files.config)) for name, files in PROJECTS.items()}
WITH_PRESET = [(name, preset) for name in PROJECTS for preset in PRESETS[name]]
WITH_KEY = [
    (name, key, applied)
    for name, files in PROJECTS.items()
    for key in Template(files.command_args).keys
    for applied in ([], *([preset] for preset in PRESETS[name]))
]
# Values for arguments that the orchestration sets at run time.
FILLERS: tuple[object, ...] = ("text", 1, 1.5, True, ["text"], {"key": "text"}, None)

each_project = pytest.mark.parametrize("name", PROJECTS)


def test_there_are_projects() -> None:
    assert PROJECTS
    assert WITH_PRESET
    assert WITH_KEY


@each_project
def test_the_configuration_is_valid_without_presets(name: str) -> None:
    load(name).check()


@pytest.mark.parametrize(("name", "preset"), WITH_PRESET)
def test_a_preset_resolves_and_is_valid(name: str, preset: str) -> None:
    configuration = load(name, preset)
    configuration.check()
    assert preset in configuration.get("ci_presets.names")


@pytest.mark.parametrize(("name", "preset"), WITH_PRESET)
def test_a_preset_changes_something(name: str, preset: str) -> None:
    before, after = load(name).get("$"), load(name, preset).get("$")
    assert {**before, "ci_presets": None} != {**after, "ci_presets": None}


@each_project
def test_every_contract_has_a_block(name: str) -> None:
    blocks = {key for key, value in load(name).get("$").items() if isinstance(value, dict | list)}
    own = {path.stem.split("__")[0] for folder in PROJECTS[name].contracts for path in folder.glob("[!_]*.py")}
    assert own <= blocks, "a contract has no block in the configuration"


@pytest.mark.parametrize(("name", "key", "applied"), WITH_KEY)
def test_the_arguments_of_a_command_fit_its_signature(name: str, key: str, applied: list[str]) -> None:
    configuration = load(name, *applied)
    arguments = Template(PROJECTS[name].command_args).arguments(key, configuration)
    match = re.fullmatch(r"(?:[^/\s]+/)?(\w+) (\w+)(?:/\S+)?", key)
    assert match, f"{key} does not have the form [prefix/]group command[/suffix]"
    described = registry.command(match[1], match[2]).signature
    left = [item for item in described.parameters if arguments.get(item.name) == SET_AT_RUNTIME]
    filled = {**arguments, **{item.name: filler(item) for item in left}}
    from_config.refuse_placeholders(key, filled)
    assert signature.bind(described, filled, text=False)


def filler(parameter: signature.Parameter) -> object:
    """Return a value that a parameter accepts."""
    for value in FILLERS:
        try:
            signature.convert(parameter, value, text=False)
        except ValueError:
            continue
        return value
    raise AssertionError(f"nothing fits {parameter}")


@each_project
def test_a_project_has_phases_and_a_summary(name: str) -> None:
    assert re.fullmatch(r"[A-Z].*\.", PROJECTS[name].summary)
    phases = projects.phases(PROJECTS[name])
    assert "test" in phases
    assert [phase for phase, function in phases.items() if not function.__doc__] == []
