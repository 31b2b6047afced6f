"""The execution of a run, and the modules that a project uses: `from toolbox.api import config, env, run`."""
