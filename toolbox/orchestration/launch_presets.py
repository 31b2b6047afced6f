"""Selects presets by the job of the CI system and by the cluster or platform, from the block `ci` of the configuration.

A job of `ci.jobs` and a cluster of `ci.clusters` are selected by the flags `--job` and `--cluster`, or else by the rule
`when` of the entry. Comments on pull requests select the same entries by their commands
(`toolbox.features.ci.comment_runs`).
"""

from __future__ import annotations

import functools
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, TypeVar

from toolbox.config import comment_limits
from toolbox.config.configuration import Configuration, Request
from toolbox.ground.model.clusters import Access
from toolbox.ground.model.errors import ConfigurationError, UsageError
from toolbox.ground.model.nearest import did_you_mean
from toolbox.ground.system import ci_job
from toolbox.matrix import plan
from toolbox.orchestration import cluster_connections, projects
from toolbox.orchestration.request import RunRequest

if TYPE_CHECKING:
    from toolbox.config.contracts.ci import NamedCluster, NamedJob, Rule

TARGET: Final = f"{plan.BLOCK}.target"
"""The field that the target of a job in `ci.jobs` replaces."""
_Entry = TypeVar("_Entry", "NamedJob", "NamedCluster")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Launch:
    """What a job and a cluster add to a request.

    Args:
        presets: the presets of the job, and then those of the cluster.
        reasons: which entry selected each preset, and why.
        overrides: the target of the job, if it has one.
    """

    presets: tuple[str, ...]
    reasons: Mapping[str, str]
    overrides: Mapping[str, Any]


def applied(request: RunRequest, job: str | None, cluster: str | None) -> RunRequest:
    """Return a request with the presets and the target of the selected job and cluster.

    Args:
        job: the name of an entry of `ci.jobs`; None to select by the rules.
        cluster: the name of an entry of `ci.clusters`; None to select by the rules.

    Raises:
        UsageError: there is no entry of this name, or the rules of several entries match.
    """
    files = projects.find(request.project)
    launch = select(Configuration.load(Request(files.config, contracts=files.contracts)), job, cluster)
    return replace(
        request,
        presets=(*launch.presets, *request.presets),
        preset_reasons=launch.reasons,
        trusted_overrides={**launch.overrides, **request.trusted_overrides},
    )


def select(configuration: Configuration, job: str | None, cluster: str | None) -> Launch:
    """Return what the job and the cluster add to a request for a configuration. The errors are those of `applied`."""
    try:
        if job is None and cluster is None and configuration.get(comment_limits.BLOCK, default=None) is None:
            return Launch((), {}, {})
        from toolbox.config.contracts.ci import Contract  # slow to import

        block = configuration.block(comment_limits.BLOCK, Contract)
    except ConfigurationError:
        if job is not None or cluster is not None:
            raise
        return Launch((), {}, {})  # the next load of the configuration reports all of its faults
    named_job, job_reason = _selected("job", block.named_jobs, job)
    named_cluster, cluster_reason = _selected("cluster", block.clusters, cluster)
    job_presets = named_job.presets if named_job is not None else []
    cluster_presets = named_cluster.presets if named_cluster is not None else []
    return Launch(
        (*job_presets, *cluster_presets),
        {**dict.fromkeys(job_presets, job_reason), **dict.fromkeys(cluster_presets, cluster_reason)},
        {TARGET: named_job.target} if named_job is not None and named_job.target else {},
    )


def _selected(kind: str, entries: Mapping[str, _Entry], name: str | None) -> tuple[_Entry | None, str]:
    """Return the selected entry of `ci.jobs` or `ci.clusters`, and the reason; None if no entry is selected."""
    field = f"{comment_limits.BLOCK}.{kind}s"
    if name is not None:
        if name not in entries:
            raise UsageError(f"unknown {kind} `{name}`: {did_you_mean(name, entries, label=f'entries of `{field}`')}")
        return entries[name], f"selected by --{kind}={name}"
    facts = _facts()
    matches = {each: reason for each, entry in entries.items() if (reason := _match(entry.when, facts))}
    if len(matches) > 1:
        named = " and ".join(f"`{each}` ({reason})" for each, reason in matches.items())
        raise UsageError(f"the rules of several {kind}s match: {named}: select one of them with --{kind}=NAME")
    return next(
        ((entries[each], f"selected by {field}.{each}: {reason}") for each, reason in matches.items()), (None, "")
    )


def _match(rule: Rule | None, facts: Mapping[str, Callable[[], str]]) -> str:
    """Return the facts that match a rule, as a text; empty if a condition of the rule is not met."""
    if rule is None:
        return ""
    reasons: list[str] = []
    for name, patterns in rule.conditions.items():
        fact = facts[name]()
        if not fact or not _matches(fact, patterns):
            return ""
        reasons.append(f"{name.replace('_', ' ')} {fact}")
    return ", ".join(reasons)


def _matches(fact: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(fact.lower(), pattern.lower()) for pattern in patterns)


def _facts() -> dict[str, Callable[[], str]]:
    """Return the functions that find the facts which rules name. A fact is found only if a rule needs it."""
    return {"job": ci_job.name, "host": socket.gethostname, "api_server": functools.cache(_api_server)}


def _api_server() -> str:
    """Return the URL of the API server of `$KUBECONFIG`, `~/.kube/config` or this pod; empty if there is none."""
    try:
        with closing(cluster_connections.connect(Access())) as connection:
            return connection.server
    except ConfigurationError as error:
        log.debug("no rule can match the API server: %s", error)
        return ""
