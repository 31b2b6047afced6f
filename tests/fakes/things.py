"""Remote resources of the kind `thing`: each is a file, which contains its labels as JSON.

A thing whose name begins with `stuck` cannot be deleted. A thing whose name begins with `slow` is deleted at the second
try. The deletion of the thing `endless` does not end by itself. The deletion of the thing `deadly` kills the process.
The request for the thing `late` is carried out after the first deletion.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from toolbox.ground.model.resources import Resource

KIND: Final = '''
"""Things, which are files."""

import json
import os
import signal
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from toolbox.ground.model.errors import InfrastructureError
from toolbox.ground.system import cancellation


class Resource(BaseModel):
    """One thing."""

    model_config = ConfigDict(extra="forbid", strict=True)
    file: str
    server: str = ""
    kubeconfig: str = ""

    def delete(self, owner):
        """Delete the file."""
        file = Path(self.file)
        if file.exists() and not owner.owns(json.loads(file.read_text())):
            raise InfrastructureError(f"{file} belongs to another owner")
        if file.name.startswith("stuck") and file.exists():
            raise InfrastructureError(f"{file} is stuck")
        tried = file.with_suffix(".tried")
        if file.name.startswith("slow") and not tried.exists():
            tried.touch()
            raise InfrastructureError(f"{file} is slow")
        if file.name == "endless":
            tried.touch()
            cancellation.current().sleep(600)
        existed = file.exists()
        if file.name == "late" and not tried.exists():
            tried.touch()
            file.write_text(json.dumps(owner.labels()))
            return existed
        file.unlink(missing_ok=True)
        if existed and file.name == "deadly":
            os.kill(os.getpid(), signal.SIGKILL)
'''
# Functions for an orchestration.
MAKE: Final = '''
import json, os, signal
from pathlib import Path
from toolbox.ground.model.resources import Resource
from toolbox.orchestration import session

def make(name, keep=False, labels=None, complete=True, kill="", **deletion):
    """Create a thing. `kill` kills this process before or after one of the actions."""
    ledger = session.step().recorder.ledger
    file = Path("remote").absolute() / name
    file.parent.mkdir(exist_ok=True)
    thing = Resource("thing", name, {"file": str(file), **deletion}, 3600, f"rm {file}", keep)
    die(kill == "before the plan")
    ledger.plan(thing)
    die(kill == "after the plan")
    with Path("created").open("a") as created:
        created.write("" if file.exists() else f"{name}\\n")
    if not file.exists():
        file.write_text(json.dumps(ledger.owner.labels(3600) if labels is None else labels))
    die(kill == "after the creation")
    if complete:
        ledger.mark_created(thing)
    die(kill == "after the mark")

def die(now):
    """Kill this process once per workspace."""
    if now and not Path("killed").exists():
        Path("killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
'''


def thing(file: Path, **fields: object) -> Resource:
    """Return the description of a thing for a ledger."""
    return Resource("thing", file.name, {"file": str(file), **fields}, 3600, f"rm {file}")
