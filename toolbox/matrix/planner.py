"""Makes the plan of a matrix: the cells, with everything that is decided before the first cell starts.

The workload, the checks and the metrics of each cell are resolved here with the settings of the cell, so that all
mistakes in cells are reported before anything runs.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import heapq
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from toolbox.config import paths
from toolbox.config.configuration import Configuration
from toolbox.config.paths import PathError
from toolbox.ground.extensions.protocols import MetricCheck, SelectiveTarget
from toolbox.ground.model import patterns, workloads, yaml_text
from toolbox.ground.model.bounds import Bound
from toolbox.ground.model.errors import ConfigurationError, ConfigurationFaults, UsageError
from toolbox.ground.model.nearest import did_you_mean
from toolbox.ground.model.secrets import Secret
from toolbox.ground.model.text import as_text
from toolbox.ground.model.workloads import Workload
from toolbox.ground.system import filesystem, processes
from toolbox.matrix import axes, reuse
from toolbox.matrix.attempt_judgement import Expectations, NamedCheck, NamedSource
from toolbox.matrix.axes import Combination
from toolbox.matrix.axis_values import path_of
from toolbox.matrix.matrix_block import Excuse, MatrixBlock, Retries, Timeouts, Xfail
from toolbox.matrix.plan import BLOCK, Cell, Plan, Selection
from toolbox.matrix.relations import Relations
from toolbox.matrix.reuse import Reuse
from toolbox.matrix.sent_files import SentFiles
from toolbox.matrix.targets import PlannedTarget
from toolbox.matrix.workload_block import WorkloadBlock

_FINGERPRINT: Final = 12  # hexadecimal digits of the digest that are a fingerprint
T = TypeVar("T")


def make(
    configuration: Configuration,
    targets: Mapping[str, PlannedTarget],
    selection: Selection,
    *,
    root: Path,
    today: dt.date,
    bounds: Mapping[tuple[str, str], Bound] | None = None,
) -> Plan:
    """Make the plan of the matrix of a configuration.

    Args:
        root: the directory to which local paths are relative.
        today: the date that decides which entries of `xfail` and `quarantine` have expired.
        bounds: the bounds from earlier runs, by cell id and metric.

    Raises:
        ConfigurationError: the matrix or a cell is wrong.
        UsageError: no cell is selected, or the shard does not exist.
    """
    block = configuration.block(BLOCK, MatrixBlock)
    _check_paths(configuration, block.axes)
    try:
        combinations = axes.expand(block)
        notes = axes.unmatched(block)
    except ValueError as error:
        path = error.path if isinstance(error, axes.IncludeError) else BLOCK
        raise ConfigurationError(f"{configuration.location(path)}: {error}") from None
    planner = _Planner(configuration, block, targets, root, today, bounds or {}, SentFiles(root))
    relations = Relations(combinations)
    selected = select(combinations, selection.cells)
    shards: Sequence[tuple[Combination, int]] = ()
    if selection.shard is not None:
        part, parts = selection.shard
        shards = _in_shards(selected, planner.compared(selected, relations), parts)
        selected = [combination for combination, shard in shards if shard == part]
    cells = _make_cells(planner, selected)
    used = {name: targets[name] for name in dict.fromkeys(name for cell in cells for name in cell.targets)}
    notes = [*notes, *_without_effect(cells, block.pools, targets, relations)]
    sent = planner.sent.digests()
    return Plan(
        cells,
        used,
        block.jobs,
        block.pools,
        block.deadline,
        notes,
        combinations,
        sent,
        max_cost=block.max_cost,
        max_cells=block.max_cells,
        shards=shards,
    )


def configuration_of_cell(configuration: Configuration, settings: Mapping[str, Any]) -> Configuration:
    """Return the configuration of a cell, in which the fields that are axes have the values of the cell."""
    fields = {axis: value for axis, value in settings.items() if path_of(axis) is not None}
    return configuration.overlaid(fields, settings)


def _check_paths(configuration: Configuration, names: Iterable[str]) -> None:
    """Check that each axis whose name is a path leads to a field: cells replace the value of that field."""
    faults: list[str] = []
    for axis in names:
        if path_of(axis) is not None:
            try:
                configuration.overlaid({axis: None}, {})
            except PathError as error:
                where = paths.render((BLOCK, "axes", axis))
                faults.append(f"{configuration.location(where)}: the axis `{axis}`: {error.detail}")
    if faults:
        raise ConfigurationFaults(faults)


def _make_cells(planner: _Planner, selected: Sequence[Combination]) -> tuple[Cell, ...]:
    """Return the cells of the selected combinations.

    Raises:
        ConfigurationFaults: some cells are wrong. A fault that several cells have is listed once, with their names.
    """
    cells: list[Cell] = []
    names: dict[str, list[str]] = {}  # the names of the cells with each fault
    for combination in selected:
        try:
            cells.append(planner.cell(combination))
        except ConfigurationError as error:
            for fault in error.faults:
                names.setdefault(fault, []).append(combination.name)
    if names:
        raise ConfigurationFaults(f"{fault}{_cells_note(cells_, len(selected))}" for fault, cells_ in names.items())
    return tuple(cells)


def _cells_note(names: Sequence[str], total: int) -> str:
    """Return the end of a message, which names the cells with a fault; empty if all cells have the fault."""
    if len(names) == total:
        return ""
    return f" (the cell `{names[0]}`)" if len(names) == 1 else f" ({len(names)} of {total} cells, as `{names[0]}`)"


def _without_effect(
    cells: Sequence[Cell], pools: Mapping[str, int], targets: Mapping[str, PlannedTarget], relations: Relations
) -> Iterator[str]:
    """Yield a note on each part of the matrix that has no effect, such as an unused pool."""
    needed = {label for cell in cells for label in cell.resources}
    limited = {*pools, *(label for target in targets.values() for label in target.capacity)}
    yield from (f"`{BLOCK}.pools.{label}`: no cell uses this pool" for label in pools if label not in needed)
    yield from (f"cells need {label}, but no pool and no target limits {label}" for label in sorted(needed - limited))
    expected = Counter(metric for cell in cells for metric in cell.expectations.by_history if not cell.skip)
    bounded = Counter(metric for cell in cells for metric in cell.bounds if not cell.skip)
    for metric, count in expected.items():
        if missing := count - bounded[metric]:
            yield f"`bounds: auto` of `{metric}`: {missing} of {count} cells have no bounds yet and only record values"
    seen = set()
    for cell in cells:
        for check in cell.expectations.checks:
            if check.to is not None and str(check.to) not in seen and relations.other(cell.settings, check.to) is None:
                seen.add(str(check.to))
                yield f"check `{check.name}`: no cell with {dict(check.to)} exists to compare `{cell.name}` with"


def select(combinations: Sequence[Combination], cells: str | None) -> Sequence[Combination]:
    """Return the combinations that match one of some patterns, in the order of the matrix.

    Args:
        cells: the patterns, separated by spaces; None selects all combinations.

    Raises:
        UsageError: a pattern matches no combination.
    """
    if cells is None:
        return combinations
    ids = set()
    for pattern in cells.split() or [""]:
        if not (matching := named(combinations, pattern)):
            raise UsageError(f"--cells={pattern}: {no_such_cell(combinations, pattern)}")
        ids |= {combination.id for combination in matching}
    return [combination for combination in combinations if combination.id in ids]


def _in_shards(
    selected: Sequence[Combination], compared: Mapping[str, str], parts: int
) -> list[tuple[Combination, int]]:
    """Return each combination with the number of its shard, in the order of the matrix.

    Cells that are compared with one another are in the same shard. Otherwise, a shard would have no value to compare
    with, or one that another machine measured. A group of such cells goes to the shard with the fewest cells so far.

    Args:
        compared: the id of the group of each combination that is compared with another one, by the id of the
            combination.
        parts: the number of shards.
    """
    sizes = Counter(compared.get(combination.id, combination.id) for combination in selected)
    loads = [(0, number) for number in range(1, parts + 1)]
    numbers: dict[str, int] = {}
    for group, size in sizes.items():
        load, number = heapq.heappop(loads)
        heapq.heappush(loads, (load + size, number))
        numbers[group] = number
    return [(combination, numbers[compared.get(combination.id, combination.id)]) for combination in selected]


def named(combinations: Sequence[Combination], pattern: str) -> Sequence[Combination]:
    """Return the combinations whose name or id matches a pattern."""
    return patterns.matching(pattern, combinations, lambda combination: (combination.name, combination.id))


def no_such_cell(combinations: Sequence[Combination], pattern: str) -> str:
    """Return why a pattern is wrong that matches no combination, with similar names."""
    hint = did_you_mean(pattern, [combination.name for combination in combinations], label="cells", most=4)
    return f"no cell has such a name; {hint}"


@dataclass(slots=True)
class _Planner:
    """Makes cells from combinations."""

    configuration: Configuration
    block: MatrixBlock
    targets: Mapping[str, PlannedTarget]
    root: Path
    today: dt.date
    bounds: Mapping[tuple[str, str], Bound]
    sent: SentFiles
    _expectations: dict[str, Expectations] = field(default_factory=dict)

    def cell(self, combination: Combination) -> Cell:
        """Make the cell of a combination.

        Raises:
            ConfigurationFaults: the cell is wrong. Each fault is listed with its line.
        """
        view = self._configuration_of(combination)
        target, resources, timeouts, retries = self._settings(combination)
        faults = _Faults(self.configuration)
        workload = faults.collect(f"{BLOCK}.workload", lambda: self._workload(view, timeouts))
        checks = self._checks(view, combination, faults)
        metrics = self._metrics(view, combination, faults)
        expectations = self._expected(checks, metrics, faults)
        fitting = faults.collect(f"{BLOCK}.target", lambda: self._targets(target, resources))
        faults.collect(f"{BLOCK}.resources", lambda: self._check_pools(resources))
        if workload is not None and fitting is not None:
            faults.collect(f"{BLOCK}.workload", lambda: self._check_acceptance(workload, fitting))
        sent = faults.collect(f"{BLOCK}.workload.files", lambda: self.sent.of(workload.files if workload else {}))
        if faults.messages or workload is None or expectations is None or fitting is None or sent is None:
            raise ConfigurationFaults(faults.messages)
        skips = [skip.reason for skip in self.block.skip if axes.matches(skip.when, combination)]
        xfails = [xfail for xfail in self.block.xfail if axes.matches(xfail.when, combination)]
        quarantines = [entry for entry in self.block.quarantine if axes.matches(entry.when, combination)]
        excuses: list[Excuse] = [*xfails, *quarantines]
        expired = [excuse for excuse in excuses if excuse.expires < self.today]
        digest = _digest(workload, sent, list(checks.values()), metrics)
        bounds = {metric: self.bounds.get((combination.id, metric)) for metric in expectations.by_history}
        return Cell(
            id=combination.id,
            name=combination.name,
            settings=combination.settings,
            labels=combination.labels,
            targets=fitting,
            resources=resources,
            retries=retries,
            skip=skips[0] if skips else "",
            xfail=_combined([xfail for xfail in xfails if xfail not in expired]),
            quarantine=next((entry for entry in quarantines if entry not in expired), None),
            note="; ".join(
                f"{excuse.word} until {excuse.expires} ({excuse.owner}: {excuse.reason}): this entry has expired"
                for excuse in expired
            ),
            workload=workload,
            expectations=expectations,
            fingerprint=digest[:_FINGERPRINT],
            reuse=self._reuse(combination, digest, workload, fitting),
            bounds={metric: bound for metric, bound in bounds.items() if bound is not None},
            owner=self._owner(combination),
        )

    def compared(self, selected: Sequence[Combination], relations: Relations) -> dict[str, str]:
        """Return the groups of combinations that checks compare: the id of a group by the id of each combination."""
        ids = {combination.id for combination in selected}
        groups: dict[str, list[str]] = {}
        for combination, to in self._relations_of(selected):
            other = relations.other(combination.settings, to)
            if other is None or other.id not in ids:
                continue
            one, two = (groups.setdefault(each, [each]) for each in (combination.id, other.id))
            if one is not two:
                smaller, larger = sorted((one, two), key=len)
                larger += smaller
                groups.update(dict.fromkeys(smaller, larger))
        return {identity: members[0] for identity, members in groups.items()}

    def _relations_of(self, selected: Sequence[Combination]) -> Iterator[tuple[Combination, Mapping[str, Any]]]:
        """Yield each combination with the settings of a cell with which a check compares it."""
        if not any("to" in check for check in self.block.checks):
            return
        for combination in selected:
            # `cell` reports the faults.
            checks = self._checks(self._configuration_of(combination), combination, _Faults(self.configuration))
            for spec in checks.values():
                if isinstance(to := spec.get("to"), Mapping):
                    yield combination, to

    def _owner(self, combination: Combination) -> str:
        """Return the owner that the last matching entry names; empty if no entry matches."""
        owners = [entry.owner for entry in self.block.owners if axes.matches(entry.when, combination)]
        return owners[-1] if owners else ""

    def _reuse(self, combination: Combination, digest: str, workload: Workload, targets: Sequence[str]) -> Reuse:
        """Return the keys by which the cell finds a result to reuse; no keys if the cell must be executed."""
        excuses = [*self.block.xfail, *self.block.quarantine, *self.block.skip]
        # A comparison of cells needs the metrics of both cells.
        is_compared = any("to" in check for check in self.block.checks)
        is_excused = any(axes.matches(entry.when, combination) for entry in excuses)
        if self.block.reuse_results is None or is_compared or is_excused:
            return Reuse()
        return reuse.keys(digest, workload, [self.targets[name] for name in targets])

    def _checks(self, view: Configuration, combination: Combination, faults: _Faults) -> dict[int, Any]:
        """Return the checks that apply to a cell, by their indexes in the list of all checks."""
        return {
            index: {key: value for key, value in spec.items() if key != "when"}
            for index, spec in self._members(view, "checks", range(len(self.block.checks)), faults)
            if axes.matches(spec.get("when") or {}, combination)
        }

    def _metrics(self, view: Configuration, combination: Combination, faults: _Faults) -> dict[str, Any]:
        """Return the metrics of a cell, by name."""
        return {
            name: {key: value for key, value in spec.items() if key != "when"}
            for name, spec in self._members(view, "metrics", self.block.metrics, faults)
            if axes.matches(spec.get("when") or {}, combination)
        }

    @staticmethod
    def _members(
        view: Configuration, name: str, keys: Iterable[str | int], faults: _Faults
    ) -> Iterator[tuple[Any, Any]]:
        """Yield the members of a block of the matrix, without the members that have wrong references."""
        members = faults.collect(f"{BLOCK}.{name}", partial(view.get, f"{BLOCK}.{name}", default={}))
        if members is not None:
            yield from members.items() if isinstance(members, dict) else enumerate(members)
            return
        for key in keys:
            with contextlib.suppress(ConfigurationError):  # `faults` already contains the error
                yield key, view.get(paths.render((BLOCK, name, key)))

    def _check_acceptance(self, workload: Workload, targets: Sequence[str]) -> None:
        for name in targets:
            description = self.targets[name].description
            if not isinstance(description, SelectiveTarget):
                continue
            try:
                description.accept(workload)
            except ValueError as error:
                raise ValueError(f"the target `{name}` cannot run the workload: {error}") from None

    def _expected(self, checks: Mapping[int, Any], metrics: Mapping[str, Any], faults: _Faults) -> Expectations | None:
        """Return the parsed checks and metrics. Cells with equal checks and metrics share the result."""
        key = json.dumps([list(checks.values()), metrics], default=str)
        if key not in self._expectations:
            faults_before = len(faults.messages)
            for name, spec in metrics.items():
                faults.collect(paths.render((BLOCK, "metrics", name)), partial(NamedSource.parse, spec))
            for index, spec in checks.items():
                faults.collect(f"{BLOCK}.checks[{index}]", partial(self._check, spec))
            if len(faults.messages) == faults_before:
                self._expectations[key] = Expectations.parse(list(checks.values()), metrics)
        return self._expectations.get(key)

    def _check(self, spec: Mapping[str, Any]) -> None:
        """Validate the description of a check: the metric and the axes that it names must exist."""
        check = NamedCheck.parse(spec)
        metric = check.check.metric if isinstance(check.check, MetricCheck) else None
        if metric is not None and metric not in self.block.metrics:
            hint = did_you_mean(metric, self.block.metrics, label="metrics")
            raise ValueError(f"check `{check.name}`: no metric `{metric}`: {hint}")
        for axis in check.to or ():
            if axis not in self.block.axes:
                hint = did_you_mean(axis, self.block.axes, label="axes")
                raise ValueError(f"check `{check.name}`: no axis `{axis}`: {hint}")

    def _configuration_of(self, combination: Combination) -> Configuration:
        return configuration_of_cell(self.configuration, combination.settings)

    def _settings(self, combination: Combination) -> tuple[str | list[str], dict[str, int], Timeouts, Retries]:
        target, resources = self.block.target, dict(self.block.resources)
        timeouts, retries = self.block.timeouts, self.block.retries
        for entry in self.block.settings:
            if axes.matches(entry.when, combination):
                target = entry.target or target
                resources |= entry.resources or {}
                timeouts = entry.timeouts.over(timeouts) if entry.timeouts else timeouts
                retries = entry.retries.over(retries) if entry.retries else retries
        if "target" in combination.settings:
            target = combination.settings["target"]
        return target, {label: count for label, count in resources.items() if count}, timeouts, retries

    def _check_pools(self, resources: Mapping[str, int]) -> None:
        for label, count in resources.items():
            if count > self.block.pools.get(label, count):
                raise ValueError(f"the cell needs {count} {label}, but the pool has only {self.block.pools[label]}")

    def _targets(self, names: str | list[str], resources: Mapping[str, int]) -> tuple[str, ...]:
        """Return the targets that have one of these names or labels, and enough capacity for the cell."""
        named: dict[str, PlannedTarget] = {}
        for text in [names] if isinstance(names, str) else names:
            matching = {name: target for name, target in self.targets.items() if text in (name, *target.labels)}
            if not matching:
                known = {label for name, target in self.targets.items() for label in (name, *target.labels)}
                raise ValueError(f"no target `{text}`: {did_you_mean(str(text), known, label='targets and labels')}")
            named |= matching
        fitting = [name for name, target in named.items() if target.can_hold(resources)]
        if not fitting:
            needs = ", ".join(f"{count} {label}" for label, count in resources.items())
            raise ValueError(f"no target has the capacity for the cell ({needs}): {', '.join(named)}")
        return tuple(fitting)

    def _workload(self, view: Configuration, timeouts: Timeouts) -> Workload:
        block = view.block(f"{BLOCK}.workload", WorkloadBlock)
        command = block.command
        words = (*processes.STRICT_BASH, command) if isinstance(command, str) else tuple(map(as_text, command))
        sources = {name: self.root / source for name, source in block.files.items()}
        if missing := {name: source for name, source in sources.items() if not source.exists()}:
            fields = {name: paths.render((BLOCK, "workload", "files", name)) for name in missing}
            raise ConfigurationFaults(
                f"{view.location(fields[name])}: `{fields[name]}`: {source} does not exist"
                for name, source in missing.items()
            )
        return Workload(
            command=words,
            env={name: value if isinstance(value, Secret) else as_text(value) for name, value in block.env.items()},
            cwd=block.cwd,
            files=sources,
            text_files={name: _content(name, value) for name, value in block.write.items()},
            collect=tuple(block.collect),
            timeouts=workloads.Timeouts(timeouts.wait, timeouts.run, timeouts.silence, timeouts.grace),
            log_bytes=block.log_bytes,
            sample_seconds=block.sample_seconds,
            backend_fields=block.backend_fields,
        )


@dataclass(slots=True)
class _Faults:
    """The faults of a cell, each with its file and line."""

    configuration: Configuration
    messages: list[str] = field(default_factory=list)

    def collect(self, path: str, make: Callable[[], T]) -> T | None:
        """Return the result of `make`; or record why the field at `path` is wrong, and return None."""
        try:
            return make()
        except ConfigurationError as error:
            self.messages += error.faults
        except ValueError as error:
            self.messages.append(f"{self.configuration.location(path)}: `{path}`: {error}")
        return None


def _combined(entries: Sequence[Xfail]) -> Xfail | None:
    """Return the entry that applies to a cell: the first one, with the tests of the others if it names tests."""
    if not entries or entries[0].tests is None:
        return entries[0] if entries else None
    named = [entry for entry in entries if entry.tests is not None]
    return entries[0].model_copy(
        update={
            "tests": list(dict.fromkeys(test for entry in named for test in entry.tests or ())),
            "reason": "; ".join(dict.fromkeys(entry.reason for entry in named)),
            "owner": ", ".join(dict.fromkeys(entry.owner for entry in named)),
            "expires": min(entry.expires for entry in named),
        }
    )


def _content(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    return yaml_text.dump(value) if name.endswith((".yaml", ".yml")) else filesystem.dump_json(value)


def _digest(workload: Workload, files_sent: Sequence[Any], checks: Sequence[Any], metrics: Mapping[str, Any]) -> str:
    """Return a hash that identifies the work of a cell. A secret is hashed by its reference, not by its value.

    Args:
        files_sent: the names and the digests of the files that are sent with the workload.
    """
    env = {name: value.reference if isinstance(value, Secret) else value for name, value in workload.env.items()}
    sent = [files_sent, dict(workload.text_files), list(workload.collect)]
    backend_fields = [value for _, value in sorted(workload.backend_fields.items()) if value != {}]
    text = json.dumps(
        [workload.command, env, workload.cwd, sent, checks, metrics, *backend_fields], sort_keys=True, default=str
    )
    return hashlib.sha256(text.encode()).hexdigest()
