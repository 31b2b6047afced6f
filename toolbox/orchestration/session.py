"""What an orchestration works in: a project's configuration, its command arguments, and the step at the top.

`config`, `env` and `run` look the session up here; `toolbox.commands` opens it. A toolbox command by itself, or a
script of a user, has none: then `$ARTIFACT_DIR`, or `artifacts/toolbox`, is where its steps go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from toolbox.config import presets
from toolbox.config.command_args import Template
from toolbox.config.configuration import Configuration
from toolbox.matrix.plan import Plan
from toolbox.matrix.scheduler import Options
from toolbox.model.clusters import Access
from toolbox.model.errors import UsageError
from toolbox.runs import steps
from toolbox.runs.recorder import Listener, Recorder
from toolbox.runs.steps import Step
from toolbox.system import environ, filesystem, places, redaction
from toolbox.system.ambient import Ambient
from toolbox.system.redaction import Redactor


@dataclass
class Session:
    """A project at work.

    Args:
        configuration: replaced, never changed, by `config.project.set_config`.
        command_args: the template of the project's command arguments.
        config_file: the resolved configuration on disk, for child processes.
        plan: the cells of its matrix, and `options`: how to run them.
        matrix_has_run: whether that was done.
        clusters: how to reach the clusters that the run has, by the names of its configuration.
    """

    project: str
    configuration: Configuration
    command_args: Path
    config_file: Path | None = None
    plan: Plan | None = None
    options: Options = field(default_factory=Options)
    matrix_has_run: bool = False
    clusters: Mapping[str, Access] = field(default_factory=dict)

    @cached_property
    def template(self) -> Template:
        """The template of the command arguments, read once."""
        return Template(self.command_args)

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables by which a child process finds this configuration."""
        variables = {environ.COMMAND_ARGS_FILE: str(self.command_args.absolute())}
        if (workspace := places.workspace()) is not None:
            variables[environ.WORKSPACE] = str(workspace)
        if self.config_file is not None:
            variables[environ.CONFIG_FILE] = str(self.config_file)
        return variables


def write_configuration(configuration: Configuration, file: Path, redactor: Redactor) -> Path:
    """Write a configuration as resolved. Who loads it applies no preset again: that would undo the overrides."""
    return filesystem.write_text(file, resolved_text(configuration, redactor), durable=True)


def resolved_text(configuration: Configuration, redactor: Redactor) -> str:
    """Return a configuration as resolved, as YAML; see `write_configuration`."""
    resolved = configuration.get("$")
    block = resolved.get(presets.BLOCK)
    if isinstance(block, dict) and block.get(presets.TO_APPLY):
        resolved = {**resolved, presets.BLOCK: {**block, presets.TO_APPLY: []}}
    return filesystem.dump_yaml(redactor.redact_nested(resolved, keep_keys=True))


_current: Ambient[Session] = Ambient("session")


def current() -> Session:
    """Return the session.

    Raises:
        UsageError: no project is at work here.
    """
    session = _current.get()
    if session is None:
        raise UsageError(f"this works only while a project runs: start one with `{environ.program()} project run NAME`")
    return session


def is_open() -> bool:
    """Tell whether a project is at work here."""
    return _current.get() is not None


@contextmanager
def opened(session: Session, top: Step) -> Iterator[Session]:
    """Make a session the current one, with its steps below `top`."""
    with _current.entered_by_process(session), steps.entered_by_process(top):
        yield session


def step() -> Step:
    """Return the current step, or the top of `$ARTIFACT_DIR` where there is none."""
    return steps.current() or outside_of_a_run()


def masked(name: str) -> str:
    """Return a name that an orchestration gives to a step, with the secrets in it masked."""
    return step().recorder.redactor(name)


def artifact_directory(path: Path) -> Path:
    """Create the directory that artifacts go to.

    Raises:
        UsageError: it cannot be created.
    """
    try:
        return filesystem.make_durable_directory(path.absolute())
    except OSError as error:
        raise UsageError(f"artifacts cannot go to {path}: {error} (--artifact_dir, ${environ.ARTIFACT_DIR})") from None


def outside_of_a_run(listeners: Sequence[Listener] = (), redactor: Redactor | None = None) -> Step:
    """Return the top of the steps of a toolbox command by itself: `$ARTIFACT_DIR`, or `artifacts/toolbox`."""
    directory = artifact_directory(environ.get_path(environ.ARTIFACT_DIR) or places.artifacts() / "toolbox")
    return Step(directory, Recorder(directory, redactor or redaction.current(), listeners), directory.name)
