"""The modules that a project imports: `from toolbox.orchestration import config, env, run`."""
