"""Makes requests for runs from the commands of a comment, and checks them against the configurations of the projects.

All faults of a comment are reported together, each with its line. Nothing is started here.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from toolbox.config import comment_limits, paths, presets
from toolbox.config.comment_limits import ForbiddenOverrides
from toolbox.config.configuration import Configuration
from toolbox.config.contracts.ci import Contract
from toolbox.config.paths import PathError
from toolbox.features.ci import earlier_runs, refusals
from toolbox.features.ci.earlier_runs import EarlierRun
from toolbox.features.ci.refusals import Fault, quoted
from toolbox.features.ci.slash import CommentRequest, Quarantine, RetestRequest, TestRequest
from toolbox.ground.model.errors import UsageError
from toolbox.ground.model.nearest import did_you_mean
from toolbox.matrix import axes, plan, planner
from toolbox.matrix.axes import Combination
from toolbox.matrix.matrix_block import MatrixBlock
from toolbox.matrix.plan import Selection
from toolbox.orchestration import projects, request
from toolbox.orchestration.launch_presets import TARGET
from toolbox.orchestration.request import RunRequest
from toolbox.records.runs.layout import RunDirectory

_QUARANTINE: Final = f"{plan.BLOCK}.quarantine"
_OWNER: Final = "a comment"
_QUARANTINE_DAYS: Final = 7  # so that the run can be repeated by hand during the next days
_MAX_QUARANTINED: Final = 200
_MAX_FAULTS: Final = 20  # with more faults, the rest of the comment is not checked
Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the caller of a comment decides.

    Args:
        project: the only project that the comment may run; None for any project.
        presets: the presets to apply before the presets of the comment.
        choices: the only presets that the comment may name; None for any preset.
        override_files: files with overrides, which may change any field.
        trusted_overrides: overrides of any fields, which the comment must not change: the pinned revision.
        artifact_dir: the directory of the runs; None for the default directory.
        earlier: what `/retest` repeats; None to repeat what did not pass in the newest run in the directory.
        shard: the part of the cells of each run; None for all cells.
        time: when the comment was created; None for now.
    """

    project: str | None = None
    presets: Sequence[str] = ()
    choices: Collection[str] | None = None
    override_files: Sequence[Path] = ()
    trusted_overrides: Mapping[str, str] = field(default_factory=dict)
    artifact_dir: Path | None = None
    earlier: Sequence[EarlierRun] | None = None
    shard: tuple[int, int] | None = None
    time: dt.datetime | None = None


@dataclass(frozen=True, slots=True)
class CommentRun:
    """A run that a comment requests.

    Args:
        line: the line of its `/test` or `/retest`.
        description: what the comment requests, on one line.
    """

    line: int
    description: str
    request: RunRequest


def of(comment: CommentRequest, settings: Settings, parse_faults: Iterable[Fault] = ()) -> list[CommentRun]:
    """Return the runs that a comment requests: first the tests in their order, then the retests.

    Args:
        parse_faults: faults that are already known, and reported with the others.

    Raises:
        UsageError: the comment names something that does not exist, or changes something that it may not change. The
            message names all faults with their lines.
    """
    faults = list(parse_faults)
    runs: list[CommentRun | None] = []
    for test in comment.tests:
        runs.append(_Checker(test.line_of(), settings, faults).test(test))
        if len(faults) > _MAX_FAULTS:
            break
    for retest in comment.retest:
        for run in _Checker(retest.line, settings, faults).retest(retest):
            if run is None or all(run.request != other.request for other in runs if other is not None):
                runs.append(run)
    refusals.raise_for(faults)
    return [_placed(run, position, settings) for position, run in enumerate(runs, start=1) if run is not None]


def _placed(run: CommentRun, position: int, settings: Settings) -> CommentRun:
    """Return a run with its shard, and with its position in the comment, which the same runs of all shards share."""
    selection = replace(run.request.selection, shard=settings.shard)
    return replace(run, request=replace(run.request, position=position, selection=selection))


class _Checker:
    """Checks one test or retest of a comment.

    Args:
        line: the line of its command.
        faults: receives the faults.
    """

    def __init__(self, line: int, settings: Settings, faults: list[Fault]) -> None:
        self._line = line
        self._settings = settings
        self._faults = faults
        self._ids: dict[tuple[str, str], frozenset[str]] = {}

    def test(self, test: TestRequest) -> CommentRun | None:
        """Return the run that a test requests; None if it has faults."""
        faults_before = len(self._faults)
        if (known := self._configure(test.project)) is None:
            return None
        block = known.block(comment_limits.BLOCK, Contract)
        job = self._entry(test.job, block.named_jobs, "job")
        cluster = self._entry(test.cluster, block.clusters, "cluster", test.line_of("cluster"))
        chosen = self._known_presets(test.presets, known)
        run = RunRequest(
            test.project,
            (
                *self._settings.presets,
                *(job.presets if job else ()),
                *(cluster.presets if cluster else ()),
                *chosen,
            ),
            override_files=self._settings.override_files,
            is_from_outside=True,
            trusted_overrides={
                **self._settings.trusted_overrides,
                **({TARGET: job.target} if job and job.target else {}),
            },
            phases=self._phases(test),
            artifact_dir=self._settings.artifact_dir,
        )
        run = self._with_overrides(run, test)
        described = " ".join(filter(None, ("/test", test.job, test.project, *test.presets)))
        return CommentRun(self._line, described, _noted(run)) if len(self._faults) == faults_before else None

    def retest(self, retest: RetestRequest) -> list[CommentRun | None]:
        """Return the runs that a retest requests; None in place of a run that has faults."""
        try:
            if (runs := self._settings.earlier) is None:
                runs = [earlier_runs.newest(retest.project or self._settings.project, self._settings.artifact_dir)]
        except UsageError as error:
            self._add(str(error))
            return []
        if retest.project is not None:
            runs = [past for past in runs if past.project == retest.project]
        if not runs:
            self._add("/retest: everything passed in the newest run, so there is nothing to repeat: use /test")
        return [self._repeated(past) for past in runs]

    def _repeated(self, past: EarlierRun) -> CommentRun | None:
        """Return the run that repeats what did not pass in an earlier run; None if it has faults."""
        if (known := self._configure(past.project)) is None:
            return None
        block = known.block(comment_limits.BLOCK, Contract)
        self._check_choices(past.chosen_presets(self._settings.presets, block))
        run = past.repeated(
            block, self._settings.presets, self._settings.override_files, self._settings.trusted_overrides
        )
        run = replace(run, artifact_dir=self._settings.artifact_dir)
        if self._configured(run, self._forbidden) is None:
            return None
        return CommentRun(self._line, f"/retest {past.project} (what did not pass in {past.name})", _noted(run))

    def _add(self, text: str, line: int | None = None) -> None:
        self._faults.append(Fault(self._line if line is None else line, text))

    def _configure(self, project: str) -> Configuration | None:
        """Return the configuration with the presets and the files of the caller; None if there is a fault."""
        if (allowed := self._settings.project) is not None and project != allowed:
            self._add(f"the comment requests the project {quoted(project)}, but only {allowed} is allowed here")
            return None
        settings = self._settings
        run = RunRequest(
            project,
            settings.presets,
            override_files=settings.override_files,
            is_from_outside=True,
            trusted_overrides=settings.trusted_overrides,
        )
        return self._configured(run, self._forbidden)

    def _configured(self, run: RunRequest, on_forbidden: Callable[[str, str], None]) -> Configuration | None:
        """Return the configuration of a run; None if there is a fault."""
        try:
            known = request.configure(run)[1]
            self._check_trusted(known)
        except ForbiddenOverrides as error:
            for fault, path in error.faults.items():
                on_forbidden(path, fault)
        except UsageError as error:
            self._add(str(error))
        else:
            return known
        return None

    def _check_trusted(self, known: Configuration) -> None:
        """Check that the comment has not changed the fields of trusted overrides."""
        for path, value in self._settings.trusted_overrides.items():
            if known.written(path) != value:
                raise UsageError(f"a comment may not change `{path}`, which has the value {value}")

    def _forbidden(self, path: str, fault: str) -> None:
        del path
        self._add(fault)

    def _entry(
        self, name: str | None, entries: Mapping[str, Entry], kind: str, line: int | None = None
    ) -> Entry | None:
        """Return the entry of the configuration that a comment names; None if it names none, or an unknown one."""
        if name is None:
            return None
        if name not in entries:
            hint = did_you_mean(name, entries, label=f"{kind}s of the project")
            self._add(f"unknown {kind} {quoted(name)}: {hint}", line)
        return entries.get(name)

    def _known_presets(self, names: Sequence[str], known: Configuration) -> list[str]:
        """Return the presets that exist."""
        available = _presets(known)
        for name in names:
            if name not in available:
                self._add(f"unknown preset {quoted(name)}: {did_you_mean(name, available, label='presets')}")
        existing = [name for name in names if name in available]
        self._check_choices(existing)
        return existing

    def _check_choices(self, names: Sequence[str]) -> None:
        choices = self._settings.choices
        for name in names:
            if choices is not None and name not in choices:
                allowed = f"only {', '.join(choices)}" if choices else "none"
                self._add(f"a comment may not choose the preset {quoted(name)}: {allowed} is allowed")

    def _phases(self, test: TestRequest) -> list[str] | None:
        """Return the phases to run; None for all phases."""
        available = projects.phases(projects.find(test.project))
        for command, names in (("skip", test.skip), ("only", test.only)):
            for name in names:
                if name not in available:
                    hint = did_you_mean(name, available, label="phases of the project")
                    self._add(f"/{command}: unknown phase {quoted(name)}: {hint}", test.line_of(command, name))
        if not (test.skip or test.only):
            return None
        return [name for name in available if (name in test.only if test.only else name not in test.skip)]

    def _with_overrides(self, run: RunRequest, test: TestRequest) -> RunRequest:
        """Return the run with the overrides, the cells and the quarantine of a test."""
        without_overrides = self._configured(run, self._forbidden)
        if without_overrides is None:
            return run
        missing = dict(_missing_fields(without_overrides, test.overrides))
        for path, problem in missing.items():
            self._add(f"/var: {problem}", test.line_of("var", path))
        run = replace(run, overrides={path: value for path, value in test.overrides.items() if path not in missing})
        known = self._configured(run, lambda path, fault: self._add(f"/var: {fault}", test.line_of("var", path)))
        if known is None or not (test.cells or test.quarantine):
            return run
        combinations = self._combinations(known)
        for pattern in test.cells:
            self._matching("cells", pattern, combinations, test)
        run = replace(run, selection=Selection(" ".join(test.cells) or None))
        return self._with_quarantine(run, known, combinations, test) if test.quarantine else run

    def _combinations(self, known: Configuration) -> Sequence[Combination]:
        """Return the combinations of the matrix; nothing if there is no matrix, or if the matrix has a fault."""
        try:
            if known.get(plan.BLOCK, default=None) is not None:
                return axes.expand(known.block(plan.BLOCK, MatrixBlock))
        except (UsageError, ValueError) as error:
            self._add(str(error))
        return []

    def _matching(
        self, command: str, pattern: str, combinations: Sequence[Combination], test: TestRequest
    ) -> Sequence[Combination]:
        matching = planner.named(combinations, pattern)
        if not matching:
            text = f"/{command} {quoted(pattern)}: {planner.no_such_cell(combinations, pattern)}"
            self._add(text, test.line_of(command, pattern))
        return matching

    def _with_quarantine(
        self, run: RunRequest, known: Configuration, combinations: Sequence[Combination], test: TestRequest
    ) -> RunRequest:
        """Return the run with the quarantined cells of a test as an override of `matrix.quarantine`.

        The override goes through `ci.overridable`, like every other override of a comment.
        """
        try:
            written = known.written(_QUARANTINE)
        except PathError:
            hint = f"a maintainer can add `quarantine: []` to the block `matrix` of {known.source}"
            self._add(f"/quarantine needs the field `{_QUARANTINE}`: {hint}", test.line_of("quarantine"))
            return run
        if not isinstance(written, list | None):
            self._add(f"/quarantine needs a list in `{_QUARANTINE}` of {known.source}", test.line_of("quarantine"))
            return run
        entries = list(written or [])
        for each in test.quarantine:
            matching = self._matching("quarantine", each.cells, combinations, test)
            entries += self._quarantined(each, matching, combinations, test)
        run = replace(run, overrides={**run.overrides, _QUARANTINE: entries})
        faults: dict[str, None] = {}
        self._configured(run, lambda _path, fault: faults.setdefault(fault))
        if faults:
            allowed = f"`{comment_limits.BLOCK}: {{{comment_limits.FIELD}: [{_QUARANTINE}]}}` in {known.source}"
            text = f"/quarantine: a comment may not change `{_QUARANTINE}`: a maintainer can allow this by {allowed}"
            self._add(text, test.line_of("quarantine"))
        return run

    def _quarantined(
        self,
        quarantine: Quarantine,
        matching: Sequence[Combination],
        combinations: Sequence[Combination],
        test: TestRequest,
    ) -> list[dict[str, Any]]:
        line = test.line_of("quarantine", quarantine.cells)
        if len(matching) > _MAX_QUARANTINED:
            self._add(f"/quarantine: {len(matching)} cells match, but at most {_MAX_QUARANTINED} are allowed", line)
            return []
        began = self._settings.time or dt.datetime.now(dt.UTC)  # the same for all shards, also if one is repeated
        expires = began.astimezone(dt.UTC).date() + dt.timedelta(days=_QUARANTINE_DAYS)
        ids = {combination.id for combination in matching}
        entries = []
        for combination in matching:
            when = dict(combination.labels)
            if self._with_labels(when, combinations) - ids:
                self._add(f"/quarantine: other cells have the same labels as `{combination.name}`", line)
                return []
            entries.append({"when": when, "reason": quarantine.reason, "owner": _OWNER, "expires": expires})
        return entries

    def _with_labels(self, when: Mapping[str, str], combinations: Sequence[Combination]) -> frozenset[str]:
        """Return the ids of the combinations that match labels. Each label is compared with each combination once."""
        for axis, label in when.items() - self._ids.keys():
            self._ids[axis, label] = frozenset(each.id for each in combinations if axes.matches({axis: label}, each))
        sets = [self._ids[item] for item in when.items()]
        return frozenset.intersection(*sets) if sets else frozenset()


def _presets(known: Configuration) -> list[str]:
    """Return the names of the presets of a configuration."""
    try:
        block = known.written(presets.BLOCK)
    except PathError:
        return []
    entries = block.items() if isinstance(block, Mapping) else ()
    return [name for name, entry in entries if isinstance(name, str) and isinstance(entry, Mapping)]


def _missing_fields(known: Configuration, overrides: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the paths of overrides whose fields do not exist, each with the reason."""
    replaced: list[paths.Path] = []
    for path in overrides:
        try:
            keys = paths.parse(path)
            if not any(keys[: len(other)] == other for other in replaced):
                known.written(path)
            replaced.append(keys)
        except PathError as error:
            yield path, error.detail


def _noted(run: RunRequest) -> RunRequest:
    """Return the run with its overrides as a file of the run directory, which `--overrides` can read."""
    overrides = run.all_overrides
    return replace(run, note={RunDirectory.overrides: overrides}) if overrides else run
