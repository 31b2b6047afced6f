"""The configuration file of the hub of the tests. JupyterHub executes the file, and defines `get_config`."""

# ruff: noqa: F821
# mypy: disable-error-code="name-defined, no-untyped-call"

import json
import os

from tests.features.notebooks.servers.jupyterhub.profile_spawner import ProfileSpawner
from tests.leftovers import VARIABLE

settings = json.loads(os.environ["HUB_OF_TESTS"])
c = get_config()

c.JupyterHub.bind_url = settings["url"]
c.JupyterHub.hub_bind_url = settings["hub_url"]
c.JupyterHub.db_url = f"sqlite:///{settings['directory']}/hub.sqlite"
c.JupyterHub.cookie_secret_file = f"{settings['directory']}/cookie_secret"
c.JupyterHub.pid_file = f"{settings['directory']}/hub.pid"
c.JupyterHub.authenticator_class = "null"  # nobody logs in by a browser
c.JupyterHub.allow_named_servers = True
c.JupyterHub.services = [{"name": "tests", "api_token": settings["admin_token"]}]
c.JupyterHub.load_roles = [
    {"name": "tests", "scopes": ["admin:users", "admin:servers", "tokens", "list:users"], "services": ["tests"]}
]
c.JupyterHub.spawner_class = ProfileSpawner
c.JupyterHub.concurrent_spawn_limit = 0
c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 0}  # a start returns at once, as Zero to JupyterHub has it
for name, value in settings["traits"].items():
    section, _, trait = name.partition(".")
    setattr(c[section], trait, value)
c.ConfigurableHTTPProxy.command = settings["proxy_command"]
c.ConfigurableHTTPProxy.api_url = settings["proxy_api_url"]
c.ConfigurableHTTPProxy.auth_token = settings["proxy_token"]
c.ConfigurableHTTPProxy.pid_file = f"{settings['directory']}/proxy.pid"

# Kernels with sockets in a directory: a port that is chosen before the kernel starts may be taken by another process.
c.Spawner.args = ["--allow-root", "--KernelManager.transport=ipc"]
c.Spawner.http_timeout = 120
c.Spawner.start_timeout = 120
c.Spawner.env_keep = ["PATH", VARIABLE]
c.Spawner.environment = settings["environment"]
c.ProfileSpawner.home_dir_template = settings["directory"] + "/home/{username}"
