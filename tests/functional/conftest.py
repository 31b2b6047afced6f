"""The project `small`, which runs shell commands and no roles, so that its runs take little time."""

import pytest

from toolbox.testing import Workspace

SMALL = {
    "projects/small/orchestration.py": '''
        """Runs the commands that its configuration holds."""
        from toolbox.orchestration import config, env, judging, run


        def prepare():
            _run("prepare")


        def test():
            _run("test")
            checks, metrics = config.project.get_config("checks"), config.project.get_config("metrics")
            judging.judge(env.ARTIFACT_DIR, checks, metrics)


        def post_cleanup():
            _run("cleanup")


        def _run(name):
            for command in config.project.get_config(f"commands.{name}"):
                run.run(command)
    ''',
    "config/small.yaml": """
        ci_presets:
          to_apply: null
          names: null
          loud:
            greeting: HELLO
          failing:
            commands.test: ["exit 7"]
          both:
            extends: [loud, failing]
        ci:
          overridable: [greeting, commands.cleanup]
        greeting: hello
        tag: "1.10"
        commands:
          prepare: []
          test: ["true"]
          cleanup: ["touch $ARTIFACT_DIR/cleaned"]
        checks: []
        metrics: {}
    """,
    "command_args/small.yaml.j2": """
        host capture_state:
          packages: ["{{ greeting }}"]
          accelerators: false
        host capture_state/nothing:
        left/host capture_state:
          packages: SET_AT_RUNTIME
        nowhere do_it:
          greeting: {{ greeting }}
          tag: {{ tag }}
    """,
}


@pytest.fixture
def small(workspace: Workspace) -> Workspace:
    """Return a team's repository with the project `small`."""
    return workspace.write(SMALL)
