"""`set_config` reaches the cells or is refused, and `config.yaml` of the run states what each cell got."""

from __future__ import annotations

import yaml

from tests.functional.grid import Grid
from toolbox.testing import Workspace

ORCHESTRATION = '''
    """Changes the configuration around a matrix."""
    from toolbox.ground.model.errors import ConfigurationError
    from toolbox.orchestration import config, matrix


    def _set(path, value):
        try:
            config.project.set_config(path, value)
        except ConfigurationError as error:
            with open("refused", "a") as file:
                file.write(f"{error}\\n")


    def prepare():
        _set("p.value", "new")
        _set("p", {"value": "new", "other": 1})
        _set("count", 3)
        _set("p.other", "free")


    def test():
        _set("via", "new")
        matrix.run()
        _set("p.value", "later")


    def post_cleanup():
        _set("via", "last")
'''
DERIVE = '''

    def derive(configuration):
        """Return the axis `n`, and an entry of `skip` in addition to the written ones."""
        skip = configuration.written("matrix.skip")
        numbers = list(range(configuration.get("count")))
        return {"matrix.axes.n": numbers, "matrix.skip": [*skip, {"when": {"n": 9}, "reason": "too slow"}]}
'''
BLOCKS = {"p": {"value": "old", "other": 1}, "via": "@p.value", "count": 1}


def test_a_cell_gets_what_the_configuration_of_the_run_states(workspace: Workspace) -> None:
    grid = Grid(workspace, ORCHESTRATION + DERIVE)
    workload = {"command": "echo $V >>{@root}/cells", "env": {"V": "@via"}}
    grid.configure(axes={"x": ["a"], "n": None}, skip=[], workload=workload, blocks=BLOCKS)
    outcome = grid.run()
    assert outcome.exit_code == 0, str(outcome)
    assert grid.lines == ["old"]
    refused = (grid.root / "refused").read_text().splitlines()
    assert [line.partition(":")[0] for line in refused[::2]] == [
        f"set_config('{path}')" for path in ("p.value", "p", "count", "via")
    ]
    assert refused[0].endswith("use the old value in `matrix.workload.env.V`")
    assert refused[4].endswith("use the old value in `matrix.axes.n`")
    text = (grid.directory / "config.yaml").read_text()
    assert yaml.safe_load(text)["p"] == {"value": "later", "other": "free"}
    notes = [line.partition(": ")[0] for line in text.splitlines() if line.startswith("#")]
    assert notes == ["# p.value was old when the cells ran", "# via was old when the cells ran"]


def test_a_refused_change_fails_the_phase_if_the_orchestration_does_not_catch_it(workspace: Workspace) -> None:
    grid = Grid(workspace, ORCHESTRATION.replace("except ConfigurationError", "except ZeroDivisionError"))
    grid.configure("a", workload={"command": "echo {@p.value} >>{@root}/cells"}, blocks=BLOCKS)
    outcome = grid.run()
    assert outcome.exit_code == 3, str(outcome)
    assert "set_config('p.value'): the cells of the matrix are planned before the first phase" in str(outcome)
    assert grid.lines == []
    assert yaml.safe_load((grid.directory / "config.yaml").read_text())["p"]["value"] == "old"
