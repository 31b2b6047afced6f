"""The backend of a team may extend the fields that this backend adds to a workload."""

from tests.unit.matrix.conftest import Planned
from tests.unit.matrix.conftest import planned as planned  # noqa: PLC0414  # re-exports the fixture
from tests.unit.matrix.test_plan import CRANE, only
from tests.unit.matrix.test_plan import extended as extended  # noqa: PLC0414
from toolbox.testing import Workspace


def test_a_backend_may_extend_the_fields_of_another_one(extended: Workspace, planned: Planned) -> None:
    package = "toolbox.features.kubernetes"
    inherits = CRANE.format(package=package, base="kubernetes", model="base.WorkloadFields")
    extended.write(
        {
            "backends/crane.py": inherits,
            "backends/again.py": "from toolbox.features.kubernetes.backends.kubernetes import *\n",
        }
    )
    workload = {"command": "true", "pod": {"image": "a:1"}, "hook": 2}
    cell = only(planned({"axes": {"x": ["a"]}, "workload": workload}))
    assert cell.workload.backend_fields == {"pod": {"image": "a:1"}, "hook": 2}
