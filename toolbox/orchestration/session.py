"""The session that an orchestration runs in: the configuration, the command arguments and the top step of the project.

The modules `config`, `env` and `run` use the current session. A toolbox command outside of a project, and a user's own
script, have no session: their steps go into `$ARTIFACT_DIR` or `artifacts/toolbox`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from toolbox.ansible import warm
from toolbox.config import presets
from toolbox.config.command_args import Template
from toolbox.config.configuration import Configuration
from toolbox.config.contracts.ansible_warm import Contract as AnsibleWarm
from toolbox.ground.model import yaml_text
from toolbox.ground.model.clusters import Access
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.foreign_text import printable
from toolbox.ground.system import environ, filesystem, places, redaction
from toolbox.ground.system.context_values import ContextValue
from toolbox.ground.system.redaction import Redactor
from toolbox.matrix.plan import Plan
from toolbox.matrix.scheduler import Options
from toolbox.records.runs import ledger, steps
from toolbox.records.runs.recorder import Listener, Recorder
from toolbox.records.runs.steps import Step


@dataclass
class Session:
    """A running project.

    Args:
        configuration: the current configuration. `config.project.set_config` replaces this value with a changed copy.
        config_file: the file with the resolved configuration, for child processes.
        plan: the cells of the matrix; None if the project has no matrix.
        options: how the scheduler runs the cells.
        matrix_has_run: whether `matrix.run` was called.
        cells_configuration: the configuration that the cells got, if such a field was changed after they had run.
        late_changes: a line for each such change, for the file with the configuration.
        clusters: how to reach the clusters of the run, by their names in the configuration.
    """

    project: str
    configuration: Configuration
    command_args: Path
    config_file: Path | None = None
    plan: Plan | None = None
    options: Options = field(default_factory=Options)
    matrix_has_run: bool = False
    clusters: Mapping[str, Access] = field(default_factory=dict)
    cells_configuration: Configuration | None = None
    late_changes: list[str] = field(default_factory=list)

    @cached_property
    def template(self) -> Template:
        """The command_args template, which is read on the first access."""
        return Template(self.command_args)

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that tell a child process where the configuration and the workspace are."""
        variables = {environ.COMMAND_ARGS_FILE: str(self.command_args.absolute())}
        if (workspace := places.workspace()) is not None:
            variables[environ.WORKSPACE] = str(workspace)
        if self.config_file is not None:
            variables[environ.CONFIG_FILE] = str(self.config_file)
        return variables


def write_configuration(
    configuration: Configuration, file: Path, redactor: Redactor, *, notes: Sequence[str] = ()
) -> Path:
    """Write the resolved configuration with an empty list of presets to apply.

    The presets are already applied. If a reader of the file applied them again, they would undo the overrides.

    Args:
        notes: lines to write as comments at the beginning of the file.
    """
    comments = "".join(f"# {printable(' '.join(redactor(note).splitlines()))}\n" for note in notes)
    return filesystem.write_text(file, comments + resolved_text(configuration, redactor), durable=True)


def resolved_text(configuration: Configuration, redactor: Redactor) -> str:
    """Return the YAML text that `write_configuration` writes."""
    resolved = configuration.get("$")
    block = resolved.get(presets.BLOCK)
    if isinstance(block, dict) and block.get(presets.TO_APPLY):
        resolved = {**resolved, presets.BLOCK: {**block, presets.TO_APPLY: []}}
    return yaml_text.dump(redactor.redact_nested(resolved, keep_keys=True))


_current: ContextValue[Session] = ContextValue("session")


def current() -> Session:
    """Return the current session.

    Raises:
        UsageError: no project is running in this process.
    """
    session = _current.get()
    if session is None:
        raise UsageError(
            f"this function works only while a project runs: start one with `{environ.program()} project run NAME`"
        )
    return session


def is_open() -> bool:
    """Return whether there is a current session."""
    return _current.get() is not None


@contextmanager
def opened(session: Session, top: Step) -> Iterator[Session]:
    """Make this session the current session, and `top` the current step, in the body."""
    enabled = session.configuration.block("ansible_warm", AnsibleWarm).root
    with warm.opened(enabled=enabled), _current.entered_by_process(session), steps.entered_by_process(top):
        yield session


def step() -> Step:
    """Return the current step; if there is none, a new step in `$ARTIFACT_DIR` or `artifacts/toolbox`."""
    return steps.current() or step_outside_run()


def masked(name: str) -> str:
    """Return the name of a step with its secrets masked."""
    return step().recorder.redactor(name)


def artifact_directory(path: Path) -> Path:
    """Create a directory for artifacts if it does not exist, or raise a `UsageError`."""
    try:
        return filesystem.make_durable_directory(path.absolute())
    except OSError as error:
        raise UsageError(
            f"the artifact directory {path} cannot be created: {error}; "
            f"choose another directory with --artifact_dir or ${environ.ARTIFACT_DIR}"
        ) from None


def step_outside_run(
    listeners: Sequence[Listener] = (), redactor: Redactor | None = None, *, artifacts: Path | None = None
) -> Step:
    """Return a new top step for commands outside of a run.

    Args:
        artifacts: the directory of the step; None for `$ARTIFACT_DIR` or `artifacts/toolbox`.
    """
    given = artifacts or environ.get_path(environ.ARTIFACT_DIR)
    directory = artifact_directory(given or places.artifacts() / "toolbox")
    redactor = redactor or redaction.current()
    recorder = Recorder(directory, redactor, listeners, ledger=ledger.of_user(redactor))
    return Step(directory, recorder, directory.name)
