"""Test inference servers with the project inference."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from toolbox.commands import _project_run
from toolbox.config import overrides as overrides_text
from toolbox.inference import cells as inference_cells
from toolbox.interface.options import ArtifactDir, Cells, Deadline, Overrides, Presets, SummaryFormat
from toolbox.interface.signature import Help
from toolbox.matrix.plan import Selection
from toolbox.orchestration import project_run
from toolbox.orchestration.request import RunRequest

ImageTag = Annotated[
    str | None, Help("the tag of the image of the servers; the field `inference.image_tag` when left out.")
]


class Inference:
    """Test inference servers with the project inference."""

    def run(
        self,
        *,
        image_tag: ImageTag = None,
        presets: Presets = None,
        overrides: Overrides = None,
        cells: Cells = None,
        deadline: Deadline = None,
        artifact_dir: ArtifactDir = None,
        format: SummaryFormat = "text",  # noqa: A002  # the flag of the command line
    ) -> int:
        """Run the project inference, as `project run inference` does, with an image of the servers."""
        files, values = overrides_text.parse(overrides)
        if image_tag is not None:
            values[inference_cells.IMAGE_TAG] = image_tag
        request = RunRequest(
            inference_cells.PROJECT,
            presets or (),
            files,
            values,
            artifact_dir=artifact_dir,
            selection=Selection(cells),
            deadline=deadline,
        )
        return _project_run.run_and_show(partial(project_run.execute, request), as_json=format == "json")
