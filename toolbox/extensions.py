"""What extensions import: the protocols that they implement, and the types that the signatures of the protocols name.

docs/extending.md describes each kind of extension with an example.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from toolbox.ground.system import modules

if TYPE_CHECKING:
    from toolbox.ground.extensions.protocols import (
        Backend,
        CaseCheck,
        Check,
        Comparator,
        ExtendingTarget,
        Forge,
        HistoryCheck,
        IdentifiableTarget,
        MachineTarget,
        MetricCheck,
        MetricSource,
        Notifier,
        OwningTarget,
        PricedTarget,
        PullRequests,
        RelationCheck,
        RemoteResource,
        ReportingPullRequests,
        SelectiveTarget,
        Target,
        VerifiableNotifier,
        VerifiableTarget,
    )
    from toolbox.ground.kit.server_answers import Generation, quoted
    from toolbox.ground.model.cases import CaseReport
    from toolbox.ground.model.clusters import Access
    from toolbox.ground.model.errors import (
        ConfigurationError,
        InfrastructureError,
        LimitExceeded,
        StepError,
        SubmissionUnknown,
        ToolboxError,
        UsageError,
    )
    from toolbox.ground.model.evidence import Evidence, Judgement
    from toolbox.ground.model.foreign_text import clean
    from toolbox.ground.model.forge_data import (
        CiRun,
        Commenters,
        CommentEvent,
        CommitReport,
        CommitStatus,
        PostedComment,
        ResultLabel,
    )
    from toolbox.ground.model.model_answers import Mismatch
    from toolbox.ground.model.notifications import Notification
    from toolbox.ground.model.prices import Rental
    from toolbox.ground.model.resources import OpenResource, Owner, Resource
    from toolbox.ground.model.secret_fields import SecretField
    from toolbox.ground.model.verdicts import Cause, Verdict
    from toolbox.ground.model.workloads import AttemptStatus, Handle, TargetContext, Workload
    from toolbox.ground.system import environ
    from toolbox.orchestration.cluster_connections import ClusterConnection
    from toolbox.records.runs.evidence_files import RelativeFile, readable
    from toolbox.records.runs.run_state import RunState
    from toolbox.reports import Report
    from toolbox.reports.page.sections import CellPart, PageCell, PageLink, PagePart, PageSection
    from toolbox.targets.backends import local

__all__ = [
    "Access",
    "AttemptStatus",
    "Backend",
    "CaseCheck",
    "CaseReport",
    "Cause",
    "CellPart",
    "Check",
    "CiRun",
    "ClusterConnection",
    "CommentEvent",
    "Commenters",
    "CommitReport",
    "CommitStatus",
    "Comparator",
    "ConfigurationError",
    "Evidence",
    "ExtendingTarget",
    "Forge",
    "Generation",
    "Handle",
    "HistoryCheck",
    "IdentifiableTarget",
    "InfrastructureError",
    "Judgement",
    "LimitExceeded",
    "MachineTarget",
    "MetricCheck",
    "MetricSource",
    "Mismatch",
    "Notification",
    "Notifier",
    "OpenResource",
    "Owner",
    "OwningTarget",
    "PageCell",
    "PageLink",
    "PagePart",
    "PageSection",
    "PostedComment",
    "PricedTarget",
    "PullRequests",
    "RelationCheck",
    "RelativeFile",
    "RemoteResource",
    "Rental",
    "Report",
    "ReportingPullRequests",
    "Resource",
    "ResultLabel",
    "RunState",
    "SecretField",
    "SelectiveTarget",
    "StepError",
    "SubmissionUnknown",
    "Target",
    "TargetContext",
    "ToolboxError",
    "UsageError",
    "Verdict",
    "VerifiableNotifier",
    "VerifiableTarget",
    "Workload",
    "clean",
    "environ",
    "local",
    "quoted",
    "readable",
]

# The module of each name: a module is imported when its name is first used.
_HOMES: Final = {
    "Backend": "toolbox.ground.extensions.protocols:Backend",
    "CaseCheck": "toolbox.ground.extensions.protocols:CaseCheck",
    "Check": "toolbox.ground.extensions.protocols:Check",
    "Comparator": "toolbox.ground.extensions.protocols:Comparator",
    "ExtendingTarget": "toolbox.ground.extensions.protocols:ExtendingTarget",
    "Forge": "toolbox.ground.extensions.protocols:Forge",
    "HistoryCheck": "toolbox.ground.extensions.protocols:HistoryCheck",
    "IdentifiableTarget": "toolbox.ground.extensions.protocols:IdentifiableTarget",
    "MachineTarget": "toolbox.ground.extensions.protocols:MachineTarget",
    "MetricCheck": "toolbox.ground.extensions.protocols:MetricCheck",
    "MetricSource": "toolbox.ground.extensions.protocols:MetricSource",
    "Notifier": "toolbox.ground.extensions.protocols:Notifier",
    "OwningTarget": "toolbox.ground.extensions.protocols:OwningTarget",
    "PricedTarget": "toolbox.ground.extensions.protocols:PricedTarget",
    "PullRequests": "toolbox.ground.extensions.protocols:PullRequests",
    "RelationCheck": "toolbox.ground.extensions.protocols:RelationCheck",
    "RemoteResource": "toolbox.ground.extensions.protocols:RemoteResource",
    "ReportingPullRequests": "toolbox.ground.extensions.protocols:ReportingPullRequests",
    "SelectiveTarget": "toolbox.ground.extensions.protocols:SelectiveTarget",
    "Target": "toolbox.ground.extensions.protocols:Target",
    "VerifiableNotifier": "toolbox.ground.extensions.protocols:VerifiableNotifier",
    "VerifiableTarget": "toolbox.ground.extensions.protocols:VerifiableTarget",
    "CaseReport": "toolbox.ground.model.cases:CaseReport",
    "Access": "toolbox.ground.model.clusters:Access",
    "ConfigurationError": "toolbox.ground.model.errors:ConfigurationError",
    "InfrastructureError": "toolbox.ground.model.errors:InfrastructureError",
    "LimitExceeded": "toolbox.ground.model.errors:LimitExceeded",
    "StepError": "toolbox.ground.model.errors:StepError",
    "SubmissionUnknown": "toolbox.ground.model.errors:SubmissionUnknown",
    "ToolboxError": "toolbox.ground.model.errors:ToolboxError",
    "UsageError": "toolbox.ground.model.errors:UsageError",
    "Evidence": "toolbox.ground.model.evidence:Evidence",
    "Judgement": "toolbox.ground.model.evidence:Judgement",
    "clean": "toolbox.ground.model.foreign_text:clean",
    "CiRun": "toolbox.ground.model.forge_data:CiRun",
    "CommentEvent": "toolbox.ground.model.forge_data:CommentEvent",
    "Commenters": "toolbox.ground.model.forge_data:Commenters",
    "CommitReport": "toolbox.ground.model.forge_data:CommitReport",
    "CommitStatus": "toolbox.ground.model.forge_data:CommitStatus",
    "PostedComment": "toolbox.ground.model.forge_data:PostedComment",
    "ResultLabel": "toolbox.ground.model.forge_data:ResultLabel",
    "Generation": "toolbox.ground.kit.server_answers:Generation",
    "Mismatch": "toolbox.ground.model.model_answers:Mismatch",
    "quoted": "toolbox.ground.kit.server_answers:quoted",
    "Notification": "toolbox.ground.model.notifications:Notification",
    "Rental": "toolbox.ground.model.prices:Rental",
    "OpenResource": "toolbox.ground.model.resources:OpenResource",
    "Owner": "toolbox.ground.model.resources:Owner",
    "Resource": "toolbox.ground.model.resources:Resource",
    "SecretField": "toolbox.ground.model.secret_fields:SecretField",
    "Cause": "toolbox.ground.model.verdicts:Cause",
    "Verdict": "toolbox.ground.model.verdicts:Verdict",
    "AttemptStatus": "toolbox.ground.model.workloads:AttemptStatus",
    "Handle": "toolbox.ground.model.workloads:Handle",
    "TargetContext": "toolbox.ground.model.workloads:TargetContext",
    "Workload": "toolbox.ground.model.workloads:Workload",
    "environ": "toolbox.ground.system:environ",
    "ClusterConnection": "toolbox.orchestration.cluster_connections:ClusterConnection",
    "RelativeFile": "toolbox.records.runs.evidence_files:RelativeFile",
    "readable": "toolbox.records.runs.evidence_files:readable",
    "RunState": "toolbox.records.runs.run_state:RunState",
    "Report": "toolbox.reports:Report",
    "CellPart": "toolbox.reports.page.sections:CellPart",
    "PageCell": "toolbox.reports.page.sections:PageCell",
    "PageLink": "toolbox.reports.page.sections:PageLink",
    "PagePart": "toolbox.reports.page.sections:PagePart",
    "PageSection": "toolbox.reports.page.sections:PageSection",
    "local": "toolbox.targets.backends:local",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used."""
    return modules.public(__name__, _HOMES, name)
