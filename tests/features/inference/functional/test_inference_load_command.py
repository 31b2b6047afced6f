"""`inference load` measures a server that is running, and shows what it measured."""

from __future__ import annotations

import csv
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.features.inference.servers.inference.http_server import HttpRequest, response, serving
from tests.features.inference.servers.reference_server import ReferenceServer, write_checkpoint
from tests.features.inference.servers.reference_server import serving as serving_model
from toolbox.ground.system import processes
from toolbox.testing import Outcome, Workspace

PROMPTS = """
- {name: completion, request: {prompt: abc, max_tokens: 4, temperature: 0}}
- {name: fmaas, request: {requests: [{text: abc}], params: {stopping: {maxNewTokens: 4}}}}
- {name: error, request: {prompt: abc, max_tokens: -1}, error: {status: 400}}
"""
NOWHERE = "--url=http://127.0.0.1:1"  # no test machine serves port 1
SHORT = ("--rates=40", "--seconds=1", "--warm_up=0.2")
KEY = "sk-5f3a9c1e77"


@pytest.fixture(scope="module", name="server")
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReferenceServer]:
    """Return a reference server with a small model."""
    checkpoint = tmp_path_factory.mktemp("model") / "tiny.npz"
    write_checkpoint(checkpoint)
    with serving_model(checkpoint, max_new_tokens=30) as found:
        yield found


@pytest.fixture
def prompts(workspace: Workspace) -> Workspace:
    """Return a workspace with a case file."""
    return workspace.write({"prompts.yaml": PROMPTS})


def load(workspace: Workspace, *flags: str, env: dict[str, str] | None = None) -> Outcome:
    return workspace.run("inference", "load", "--cases=prompts.yaml", *flags, env=env)


def refuses(request: HttpRequest) -> Iterable[bytes]:
    """Answer with an error that attacks the terminal and contains the API key."""
    text = f"\x1b]0;pwned\x07::error::{request.headers.get('authorization')}{1000 * 'x'}"
    return [response({"error": {"message": text, "code": "full"}}, status=429)]


@pytest.mark.parametrize("protocol", ["url", "grpc"])
def test_each_step_is_shown_with_its_figures(prompts: Workspace, server: ReferenceServer, protocol: str) -> None:
    address = server.url if protocol == "url" else server.grpc_address
    flags = (f"--{protocol}={address}", *SHORT, "--concurrencies=2", "--objectives={first_token: 5}")
    outcome = load(prompts, *flags)
    assert outcome.exit_code == 0, str(outcome)
    rows = [line.split() for line in outcome.stdout.splitlines() if line.startswith(("rate=40 ", "concurrency=2 "))]
    assert [(row[0], row[2]) for row in rows] == [("rate=40", "0"), ("concurrency=2", "0")]
    assert [row[3] for row in rows] == [row[4] for row in rows], "every answer meets the objective"
    (line,) = [line for line in outcome.stdout.splitlines() if line.startswith("samples: ")]
    with Path(line.partition(": ")[2]).open() as file:
        samples = list(csv.DictReader(file))
    assert {sample["case"] for sample in samples} == {f"prompts/{'completion' if protocol == 'url' else 'fmaas'}"}


def test_a_program_reads_the_figures_as_json(prompts: Workspace, server: ReferenceServer) -> None:
    outcome = load(prompts, f"--url={server.url}", *SHORT, "--format=json", "--artifact_dir=here")
    assert outcome.exit_code == 0, str(outcome)
    (step,) = outcome.json["steps"]
    assert (step["name"], step["errors"], step["first_token"]["p50"] > 0) == ("rate=40", 0, True)
    assert Path(outcome.json["files"]["results"]).is_relative_to(prompts.directory / "here")
    assert "step rate=40" in outcome.stderr


def test_an_interrupted_load_shows_the_steps_that_have_ended(prompts: Workspace, server: ReferenceServer) -> None:
    flags = (f"--url={server.url}", "--rates=40,1", "--seconds=2", "--warm_up=0")
    with prompts.start("inference", "load", "--cases=prompts.yaml", *flags) as running:
        running.wait_for("step rate=1: begins")
        running.send(signal.SIGINT)
        outcome = running.wait()
    assert outcome.exit_code == 130, str(outcome)
    assert [line.split()[0] for line in outcome.stdout.splitlines() if line.startswith("rate=")] == ["rate=40"]
    assert processes.marked(prompts.directory) == []


def test_the_errors_of_a_server_are_shown_without_control_characters_and_the_key(prompts: Workspace) -> None:
    with serving(refuses) as hostile:
        outcome = load(prompts, f"--url={hostile.url}", *SHORT, "--api_key_variable=MODEL_KEY", env={"MODEL_KEY": KEY})
    assert outcome.exit_code == 1, str(outcome)
    assert "no request was answered in rate=40" in outcome.stderr
    (line,) = [line for line in outcome.stdout.splitlines() if " requests: full: " in line]
    assert ("Bearer ***xxx" in line, line.endswith("..."), len(line) < 250) == (True, True, True)
    assert "\x1b" not in outcome.stdout + outcome.stderr
    assert KEY not in outcome.stdout + outcome.stderr
    assert prompts.holding(KEY) == []


def test_a_server_that_cannot_be_reached_is_an_error(prompts: Workspace) -> None:
    outcome = load(prompts, NOWHERE, "--rates=1", "--timeout=0.5")
    assert outcome.exit_code == 3, str(outcome)
    assert "error: the server was not ready within 0.5 s: GET /v1/models: " in outcome.stderr


@pytest.mark.parametrize(
    ("flags", "faults"),
    [
        ([], ["write --url=http://HOST:PORT or --grpc=HOST:PORT", "--rates, --concurrencies or both"]),
        ([NOWHERE, "--grpc=127.0.0.1:9", "--rates=1"], ["write either --url or --grpc"]),
        ([NOWHERE, "--rates=1,-2"], ["--rates[1]: must be greater than 0"]),
        ([NOWHERE, "--rates=2,2"], ["the step rate=2 occurs more than once"]),
        ([NOWHERE, "--concurrencies=0", "--seed=-1"], ["--concurrencies[0]: must be", "--seed: must be"]),
        ([NOWHERE, "--rates=1", "--seconds=5"], ["--warm_up 10 leaves nothing to measure in --seconds 5"]),
        ([NOWHERE, "--rates=1", "--objectives={slow: 1}"], ["--objectives.slow: "]),
        ([NOWHERE, "--rates=1", "--api_key_variable=NOT_SET"], ["the environment variable NOT_SET is not set"]),
        ([NOWHERE, "--rates=fast"], ["--rates[0] must be a number, not 'fast'"]),
    ],
)
def test_wrong_options_are_named_before_anything_is_sent(
    prompts: Workspace, flags: list[str], faults: list[str]
) -> None:
    outcome = load(prompts, *flags)
    assert outcome.exit_code == 2, str(outcome)
    assert [fault for fault in faults if fault not in outcome.stderr] == [], str(outcome)
    assert not prompts.artifacts.exists()


def test_every_fault_of_a_case_file_is_named_with_its_line(workspace: Workspace) -> None:
    workspace.write({"prompts.yaml": "- {name: a, request: {prompt: 1}}\n- {name: b}"})
    outcome = load(workspace, NOWHERE, "--rates=1")
    assert outcome.exit_code == 2, str(outcome)
    assert "prompts.yaml:1" in outcome.stderr
    assert "prompts.yaml:2" in outcome.stderr


def test_missing_libraries_are_named_with_the_command_that_installs_them(prompts: Workspace) -> None:
    prompts.write({"hidden/sitecustomize.py": "import sys\nsys.modules.update(dict.fromkeys(['httpx', 'grpc']))\n"})
    outcome = load(prompts, NOWHERE, "--rates=1", env={"PYTHONPATH": str(prompts.directory / "hidden")})
    assert outcome.exit_code == 2, str(outcome)
    assert "inference load needs httpx, grpc, which are not installed: " in outcome.stderr
    assert "[inference]" in outcome.stderr
