"""Options that commands of several groups share. Each option is a type with a help text, or a group of flags.

A command uses such a type for a parameter (`namespace: Namespace = None`, `*, launch: LaunchFlags`), and need not
repeat the help. If the docstring of the command documents the option, that text replaces the shared help.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from toolbox.ground.interface.signature import FlagGroup, Help
from toolbox.ground.model.quantities import Seconds

Choice = TypeVar("Choice")

Format = Annotated[Choice, Help("the format of the output.")]
SummaryFormat = Annotated[
    Literal["text", "json"],
    Help("with json, stdout gets the summary of the run as JSON, and stderr gets all other output."),
]
Timeout = Annotated[Seconds, Help("the time limit of the command in seconds.")]

# Projects and their configurations
ConfigFile = Annotated[Path | None, Help("a configuration file to read instead of the file of the project.")]
Presets = Annotated[list[str] | None, Help("the presets to apply, in this order.")]
Overrides = Annotated[
    str | None,
    Help("changes to apply after the presets: a mapping from paths to values, or the names of files with mappings."),
]


@dataclass(frozen=True, slots=True)
class LaunchFlags(FlagGroup):
    """How the configuration of a project is changed for a run.

    Args:
        job: a job of `ci.jobs`, whose presets and target are applied. When left out: the job whose rule `when` matches.
        cluster: a cluster of `ci.clusters`, whose presets are applied. When left out: the one whose rule `when`
            matches.
    """

    presets: Presets = None
    job: str | None = None
    cluster: str | None = None
    overrides: Overrides = None


Cells = Annotated[
    str | None, Help("a pattern for the names or ids of cells, such as 'model=small,*'; all cells when left out.")
]
Shard = Annotated[
    str | None,
    Help("the part of the cells to run: 1/3 is the first of three parts, which together contain each cell once."),
]
ArtifactDir = Annotated[
    Path | None, Help("the directory for the directories of runs. When left out: $ARTIFACT_DIR, else artifacts/.")
]
Deadline = Annotated[
    Seconds | None,
    Help("the time limit of the run in seconds. A run that exceeds it ends with exit code 124."),
]
RunDir = Annotated[Path | None, Help("the directory of the run; the newest run when left out.")]

# How to reach a cluster: the fields of `toolbox.ground.model.clusters.Access`
Kubeconfig = Annotated[
    Path | None, Help("the kubeconfig file of the cluster. When left out: $KUBECONFIG, else ~/.kube/config.")
]
Context = Annotated[str | None, Help("the context of the kubeconfig file; its current context when left out.")]
Namespace = Annotated[str | None, Help("the namespace to work in; the namespace of the context when left out.")]

# What runs in a pod, and where
Argv = Annotated[
    list[str] | None, Help("the command line of the container; the command line of the image when left out.")
]
Env = Annotated[
    dict[str, str] | None,
    Help("environment variables of the container. Do not put secrets here: other users of the cluster can read them."),
]
EnvFromSecrets = Annotated[
    list[str] | None, Help("the names of Secrets whose keys become environment variables of the container.")
]
Resources = Annotated[
    dict[str, dict[str, str]] | None,
    Help("the `requests` and `limits` of the container, each as in {cpu: 4, nvidia.com/gpu: 1}."),
]
NodeSelector = Annotated[
    dict[str, str] | None, Help("the labels of the nodes that may run the pods; all nodes when left out.")
]
ImagePullPolicy = Annotated[
    Literal["IfNotPresent", "Always", "Never"],
    Help("when a node pulls the image: the `imagePullPolicy` of Kubernetes."),
]
