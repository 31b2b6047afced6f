"""A cluster that a command of the configuration created for one run. A second command of the configuration removes it.

The cluster has no labels. Its name, which contains the name of the run, identifies the owner.
"""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from toolbox.ground.model.errors import InfrastructureError
from toolbox.ground.model.resources import Owner
from toolbox.ground.system import environ, filesystem, processes
from toolbox.records.runs import steps
from toolbox.records.runs.program_output import ProgramOutput

_AbsolutePath = Annotated[str, Field(pattern=r"^/", max_length=4096)]


class Resource(BaseModel):
    """One cluster.

    Args:
        arguments: the program that removes the cluster, and its arguments.
        variables: the environment variables of the program.
        directory: the working directory of the program.
        created_by: the directory of the step that created the cluster. Its processes are ended after the removal.
        kubeconfig: the file that describes the access to the cluster, which is removed as well.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    arguments: list[str] = Field(min_length=1)
    variables: dict[str, str]
    directory: _AbsolutePath
    created_by: _AbsolutePath
    kubeconfig: _AbsolutePath

    def delete(self, owner: Owner) -> None:  # noqa: ARG002  # the cluster has no labels
        """Run the program, and end the processes of the cluster on this machine. See `RemoteResource`."""
        step = steps.required("destroy")
        output = ProgramOutput(step)
        command = shlex.join(self.arguments)
        output.write(f"$ {command}")
        try:
            completed = processes.run(
                self.arguments,
                env=processes.environment(step.directory, self.variables),
                cwd=Path(self.directory),
                on_line=output.write,
                on_error_line=output.write_error,
            )
        except OSError as error:
            raise InfrastructureError(f"`{command}` cannot be started: {error}") from error
        if completed.returncode != 0:
            lines = [f"`{command}` ended with status {completed.returncode}", *output.error_lines]
            raise InfrastructureError("\n".join(lines))
        processes.end_marked(Path(self.created_by))
        folder = Path(self.kubeconfig).parent
        if folder.parent == kubeconfigs():
            shutil.rmtree(folder, ignore_errors=True)


def kubeconfigs() -> Path:
    """Return the directory of the kubeconfigs of created clusters.

    They give full access to a cluster, so they are not in run directories, which may be published.
    """
    return filesystem.make_directory(environ.state_directory() / "clusters")
