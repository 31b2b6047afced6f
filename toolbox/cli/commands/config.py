"""Show, explain and check the configuration of a project."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from toolbox.config import overrides as overrides_text
from toolbox.config import paths
from toolbox.config.configuration import Configuration, Request
from toolbox.config.document import Location
from toolbox.config.references import is_whole_reference, refers_to_cell
from toolbox.ground.interface.options import ConfigFile, Format, LaunchFlags
from toolbox.ground.interface.signature import Help
from toolbox.ground.model import yaml_text
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.secrets import MASK, Secret
from toolbox.ground.model.text import with_text_keys
from toolbox.ground.system import environ, redaction
from toolbox.orchestration import launch_presets, projects

log = logging.getLogger(__name__)

Style = Literal["yaml", "json"]
Project = Annotated[str | None, Help("the name of the project; may be left out with --config_file.")]


class Config:
    """Show, explain and check the configuration of a project."""

    def show(
        self,
        project: Project = None,
        path: str = paths.ROOT,
        *,
        config_file: ConfigFile = None,
        launch: LaunchFlags,
        raw: bool = False,
        format: Format[Style] = "yaml",  # noqa: A002  # the flag of the command line
    ) -> str:
        """
        Print the configuration of a project, or a part of it, with its presets and overrides applied.

        Args:
            path: the path of the part to print, as in a.b, a[0] or a["key.with.dots"]; $ is the whole configuration.
            raw: print references as they are written, and do not check contracts.
        """
        configuration = _load(project, config_file, launch)
        if raw:
            return _dump(configuration.written(path), format)
        configuration.check()
        return _dump(configuration.get(path), format)

    def get(
        self,
        project: Project = None,
        path: str = paths.ROOT,
        *,
        config_file: ConfigFile = None,
        launch: LaunchFlags,
        raw: bool = False,
        format: Format[Style] = "yaml",  # noqa: A002  # the flag of the command line
    ) -> str:
        """
        Print one value. Faults in other values do not matter, because neither contracts nor other references are
        checked.

        Args:
            path: the path of the value to print, as in a.b, a[0] or a["key.with.dots"]; $ is the whole configuration.
            raw: print references as they are written.
        """
        configuration = _load(project, config_file, launch)
        value = configuration.written(path) if raw else configuration.get(path)
        return _dump(value, format)

    def explain(
        self,
        project: Project = None,
        path: str = paths.ROOT,
        *,
        config_file: ConfigFile = None,
        launch: LaunchFlags,
    ) -> str:
        """
        Explain where a value comes from: the file and line, and each preset or override that changed the value.

        Args:
            path: the path of the value to explain, as in a.b, a[0] or a["key.with.dots"].
        """
        configuration = _load(project, config_file, launch)
        return "\n".join(_explanation(configuration, path))

    def validate(
        self,
        project: Project = None,
        *,
        config_file: ConfigFile = None,
        launch: LaunchFlags,
    ) -> str:
        """
        Check a configuration against all contracts, check all references and secrets, and report all faults. Warn about
        values without quotes that may be meant as text, such as 3.10 and on.
        """
        configuration = _load(project, config_file, launch)
        if project is not None:
            configuration = projects.derived(projects.find(project), configuration)
        for line in configuration.ambiguous_scalars():
            log.warning("%s", line)
        configuration.check()
        configuration.check_secrets()
        return f"{configuration.source} is valid"

    def diff(
        self,
        project: Project = None,
        *,
        config_file: ConfigFile = None,
        launch: LaunchFlags,
        format: Format[Literal["text", "json"]] = "text",  # noqa: A002  # the flag of the command line
    ) -> str:
        """Print each field that presets and overrides change: its old value, its new value, and what changed it."""
        changed = _load(project, config_file, launch)
        before = dict(_leaves(_load(project, config_file, None).written(paths.ROOT), ()))
        after = dict(_leaves(changed.written(paths.ROOT), ()))
        rows = [
            _difference(path, before, after, changed)
            for path in {**before, **after}
            if path not in before or path not in after or before[path] != after[path]
        ]
        if format == "json":
            return json.dumps(rows, indent=2, default=str)
        return "\n".join(map(_difference_line, rows)) or "there are no differences"


def _difference(
    path: paths.Path, before: Mapping[paths.Path, Any], after: Mapping[paths.Path, Any], changed: Configuration
) -> dict[str, Any]:
    row: dict[str, Any] = {"path": paths.render(path), "by": _last_layer(changed, path)}
    if path in before:
        row["before"] = before[path]
    if path in after:
        row["after"] = after[path]
    return row


def _difference_line(row: Mapping[str, Any]) -> str:
    if "before" not in row:
        return f"+ {row['path']}: {yaml_text.dump_line(row['after'])}  ({row['by']})"
    if "after" not in row:
        return f"- {row['path']}: {yaml_text.dump_line(row['before'])}  ({row['by']})"
    return (
        f"  {row['path']}: {yaml_text.dump_line(row['before'])} --> {yaml_text.dump_line(row['after'])}  ({row['by']})"
    )


def _load(project: str | None, config_file: Path | None, launch: LaunchFlags | None) -> Configuration:
    """Load a configuration, with the presets and overrides that a run would have; without any if `launch` is None."""
    files = projects.find(project) if project is not None else None
    config_file = config_file or (files.config if files else environ.get_path(environ.CONFIG_FILE))
    if config_file is None:
        raise UsageError(
            f"name a project (`{environ.program()} project list` lists them), or a file with --config_file"
        )
    contracts = files.contracts if files else ()
    request = Request(config_file, contracts=contracts)
    if launch is not None:
        override_files, values = overrides_text.parse(launch.overrides)
        request = Request(config_file, launch.presets or (), override_files, values, contracts)
    configuration = Configuration.load(request)
    chosen = launch_presets.select(configuration, launch.job, launch.cluster) if launch is not None else None
    if chosen is not None and (chosen.presets or chosen.overrides):
        request = replace(
            request,
            presets=(*chosen.presets, *request.presets),
            trusted_overrides=chosen.overrides,
            preset_reasons=chosen.reasons,
        )
        configuration = Configuration.load(request)
    redaction.current().add(configuration.secret_values())
    return configuration


def _dump(value: Any, style: Style) -> str:
    if style == "json":
        return json.dumps(with_text_keys(value), indent=2, default=_as_text, ensure_ascii=False)
    return yaml_text.printed(value)


def _as_text(value: object) -> str:
    return (value.reference or MASK) if isinstance(value, Secret) else str(value)


def _explanation(configuration: Configuration, path: str) -> Iterator[str]:
    path = _up_to_reference(configuration, path)
    value, resolved = configuration.written(path), configuration.get(path)
    yield f"{path} = {yaml_text.dump_line(value)}" + (
        f" --> {yaml_text.dump_line(resolved)}" if resolved != value else ""
    )
    history = configuration.history(path)
    for change in reversed(history):
        at = paths.render(change.path)
        target = "it" if at == path else f"{at} to {yaml_text.dump_line(change.value)}"
        source = f"{change.layer}{_in_parentheses(change.location)}"
        yield f"  {source} set {target}, in place of {yaml_text.dump_line(change.replaced)}"
    first = history[0].replaced_location if history else configuration.location(path)
    if first:
        yield f"  {first} wrote {yaml_text.dump_line(history[0].replaced)}" if history else f"  {first} wrote it"
    if is_whole_reference(value):
        lines = (
            _axis_explanation(configuration, value)
            if value == resolved and refers_to_cell(value[1:])
            else _explanation(configuration, value[1:])
        )
        yield from (f"  {line}" for line in lines)


def _up_to_reference(configuration: Configuration, path: str) -> str:
    """Return the part of a path that exists in the file: up to the first field whose value is a reference.

    If `a` is `"@b"`, the value of `a.c` is not written below `a` but below `b`, so `a` is returned for `a.c`.
    """
    keys = paths.parse(path)
    for depth in range(1, len(keys)):
        beginning = paths.render(keys[:depth])
        if is_whole_reference(configuration.written(beginning)):
            return beginning
    return path


def _axis_explanation(configuration: Configuration, reference: str) -> Iterator[str]:
    """Explain a reference to a value of the cell, such as `@cell.batch`, by the axis of the matrix."""
    axis = next(iter(paths.parse(reference[1:])[1:]), None)
    if axis is None:
        yield f"{reference} stands for all axis values of a cell of the matrix"
        return
    field = paths.render(("matrix", "axes", axis))
    try:
        configuration.written(field)
    except paths.PathError:
        yield f"{reference} is a value of a cell of the matrix, but the matrix has no axis `{axis}`"
        return
    yield f"{reference} is the value of the axis `{axis}`, which differs between cells"
    yield from _explanation(configuration, field)


def _in_parentheses(location: Location | None) -> str:
    return f" ({location})" if location else ""


def _last_layer(configuration: Configuration, path: paths.Path) -> str:
    """Return the layer that changed a field last. For a removed field, return the layer that replaced its parent."""
    while path:
        try:
            history = configuration.history(paths.render(path))
        except paths.PathError:
            history = []
        if history:
            return f"{history[-1].layer}{_in_parentheses(history[-1].location)}"
        path = path[:-1]
    return "the presets applied"


def _leaves(value: Any, at: paths.Path) -> Iterator[tuple[paths.Path, Any]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, (*at, key if isinstance(key, str | int) else str(key)))
    else:
        yield at, value
