"""Run a toolbox command with arguments from a configuration and a template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from toolbox.cli import invocation
from toolbox.config.configuration import Configuration, Request
from toolbox.ground.interface import registry, signature
from toolbox.ground.interface.options import Presets
from toolbox.ground.model import yaml_text
from toolbox.ground.model.errors import UsageError
from toolbox.ground.system import environ, redaction
from toolbox.orchestration import from_config as orchestration
from toolbox.orchestration import projects, session
from toolbox.orchestration.session import Session


def from_config(
    group: str,
    command: str,
    *,
    config_file: Path | None = None,
    command_args_file: Path | None = None,
    project: str | None = None,
    presets: Presets = None,
    prefix: str | None = None,
    suffix: str | None = None,
    extra: dict[str, Any] | None = None,
    show_args: bool | str = False,
) -> int | str:
    """
    Run a toolbox command with arguments from a configuration and a template.

    Args:
        group: the group of the toolbox command, such as cluster.
        command: the name of the toolbox command in its group, such as wait_ready.
        config_file: the configuration file. When left out: the file of --project, else $TOPGALLANT_FROM_CONFIG_FILE.
        command_args_file: the template with the arguments. When left out: the template of --project, else
            $TOPGALLANT_FROM_COMMAND_ARGS_FILE.
        project: use the configuration and the template of this project.
        prefix: the first part of the key in the template, `prefix/group command`.
        suffix: the last part of the key in the template, `group command/suffix`.
        extra: arguments that are added to those of the template, or replace them, as in {name: value}.
        show_args: print the arguments as YAML, and run nothing. --show_args=NAME prints only the argument NAME.
    """
    work = _session(project, config_file, command_args_file, presets or [])
    call = orchestration.Call(group, command, prefix, suffix, extra or {})
    values = orchestration.arguments(call, work.configuration, work.template)
    if show_args is not False and show_args != "False":
        output = values if show_args in {True, "True"} else orchestration.argument(values, str(show_args), call.key)
        return yaml_text.printed(output)
    work.configuration.check_contracts()
    toolbox_command = registry.command(group, command)
    orchestration.refuse_placeholders(call.key, values)
    bound = signature.bind(toolbox_command.signature, values, text=False, argv=call.extra)
    with session.opened(work, session.step_outside_run()):
        return invocation.invoke(toolbox_command, bound, redaction.current())


def _session(
    project: str | None, config_file: Path | None, command_args_file: Path | None, presets: list[str]
) -> Session:
    files = projects.find(project) if project is not None else None
    config_file = config_file or (files.config if files else environ.get_path(environ.CONFIG_FILE))
    command_args_file = command_args_file or (
        files.command_args if files else environ.get_path(environ.COMMAND_ARGS_FILE)
    )
    if config_file is None:
        raise UsageError(f"give a project with --project, or a file with --config_file or ${environ.CONFIG_FILE}")
    if command_args_file is None:
        raise UsageError(
            f"give a project with --project, or a file with --command_args_file or ${environ.COMMAND_ARGS_FILE}"
        )
    contracts = files.contracts if files else ()
    configuration = Configuration.load(Request(config_file, presets, contracts=contracts))
    redaction.current().add(configuration.secret_values())
    return Session(project or config_file.stem, configuration, command_args_file)
