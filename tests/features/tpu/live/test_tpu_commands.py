"""The commands of `tpu`, with the test server of the TPU API and its real workers."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.features.tpu.servers import tpu
from toolbox.features.tpu import deletion, worker_readiness
from toolbox.ground.interface import registry, signature
from toolbox.ground.model.errors import Cancelled, StepError, UsageError
from toolbox.ground.model.events import Event, Note
from toolbox.ground.model.resources import Owner, Resource
from toolbox.ground.model.verdicts import Cause, Verdict
from toolbox.ground.system import cancellation
from toolbox.ground.system.redaction import Redactor
from toolbox.records.runs import ledger, steps
from toolbox.records.runs.ledger import Ledger
from toolbox.records.runs.recorder import Recorder
from toolbox.records.runs.steps import Step
from toolbox.testing import Workspace

pytestmark = pytest.mark.live

PROJECT, ZONE = "my-project", "us-central1-b"
Create = Callable[..., str]


class Tpu:
    """`Tpu().delete("x", force=True)` calls `tpu delete` with these arguments."""

    def __getattr__(self, name: str) -> Callable[..., str]:
        command = registry.command("tpu", name)

        def call(*args: str, **flags: Any) -> str:
            names = [parameter.name for parameter in command.signature.parameters if parameter.positional]
            values = dict(zip(names, (*args[:1], list(args[1:])), strict=False))
            bound = signature.bind(command.signature, {**values, **flags}, text=False)
            return str(signature.call(command.signature, command.call, bound))

        return call


@pytest.fixture(name="server", scope="module")
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tpu.Server]:
    with tpu.serving(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(name="notes")
def _notes() -> list[str]:
    return []


@pytest.fixture(name="step")
def _step(tmp_path: Path, notes: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Step]:
    """Yield the step of a command in a run, with the ledger of the run."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(deletion, "_FIRST_PAUSE", 0.05)
    monkeypatch.setattr(worker_readiness, "_PAUSE", 0.05)
    monkeypatch.setattr(worker_readiness, "_PROBE_SECONDS", 1)

    def listen(event: Event) -> None:
        if isinstance(event, Note):
            notes.append(event.text)

    run = tmp_path / "20261121-011343-x7k2"
    run.mkdir()
    recorder = Recorder(run, Redactor(), [listen], ledger=ledger.of_run(run, "project"))
    with steps.entered(Step(run, recorder, "top")) as entered:
        yield entered


@pytest.fixture(name="create")
def _create(server: tpu.Server, step: Step) -> Iterator[Create]:
    """Return a function that creates the TPU `x`, which is deleted at the end."""

    def create(name: str = "x", **fields: Any) -> str:
        return Tpu().create(
            name,
            **{
                "project": PROJECT,
                "zone": [ZONE],
                "runtime_version": "v2-alpha-tpuv6e",
                "accelerator_type": "v6e-1",
                "ssh_port": server.ssh_port,
                "api_endpoint": server.endpoint,
                "timeout": 60,
                **fields,
            },
        )

    yield create
    server.clear_faults()
    Tpu().delete("x", project=PROJECT, zone=ZONE, api_endpoint=server.endpoint)
    assert not step.recorder.ledger.open_resources()
    assert server.leftovers() == []


def run(server: tpu.Server, *command: str, name: str = "x", workers: str = "all") -> str:
    return Tpu().run(name, *command, workers=workers, ssh_port=server.ssh_port)


def test_a_tpu_is_requested_in_the_next_zone_if_the_first_one_refuses(server: tpu.Server, create: Create) -> None:
    other = "us-east5-b"
    server.add_fault(tpu.Fault("CreateNode", "RESOURCE_EXHAUSTED"))
    assert f"/locations/{other}/nodes/x is requested" in create(zone=[ZONE, other], wait=False)
    assert Tpu().delete("x", project=PROJECT, zone=other, api_endpoint=server.endpoint).endswith("is deleted")


def test_a_tpu_is_ready_when_all_startup_scripts_have_ended(
    server: tpu.Server, create: Create, tmp_path: Path, notes: list[str]
) -> None:
    script = tmp_path / "start.sh"
    script.write_text("while [ ! -e /var/lib/topgallant/gate ]; do sleep 0.05; done; touch /tmp/started")

    def open_gates() -> None:
        for worker in server.workers("x"):
            (worker.directory / "disk/topgallant/gate").touch()

    _when(lambda: any("script is running" in note for note in notes), open_gates)
    assert create(accelerator_type="v6e-16", startup_script_file=script).endswith("is ready with 4 workers")
    run(server, "test -e /tmp/started")
    assert any("startup script is running" in note for note in notes)
    assert Tpu().wait_ready("x", ssh_port=server.ssh_port) == "x is ready with 4 workers"


def _when(condition: Callable[[], bool], act: Callable[[], object]) -> threading.Thread:
    """Call a function in another thread as soon as a condition is true, and return the thread."""

    def wait() -> None:
        deadline = time.monotonic() + 60
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.01)
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_a_startup_script_that_fails_is_reported_with_its_output(create: Create, tmp_path: Path) -> None:
    script = tmp_path / "start.sh"
    script.write_text("echo no such package; exit 5")
    with pytest.raises(
        StepError, match=r"worker 0: the startup script ended with status 5:\nno such package"
    ) as caught:
        create(startup_script_file=script)
    assert caught.value.cause is Cause.CONFIGURATION
    assert str(caught.value).count("\n") < 5


def test_output_and_status_are_kept_for_each_worker(
    server: tpu.Server, step: Step, create: Create, notes: list[str]
) -> None:
    create(slices=2, accelerator_type="v6e-8")
    with pytest.raises(StepError, match="the command failed on 1 worker") as caught:
        run(
            server,
            'echo out; echo; echo err >&2; printf end; [ "$(hostname)" = "$(hostname)" ] && exit 255',
            workers="1",
        )
    assert (caught.value.verdict, caught.value.cause) == (Verdict.FAILED, Cause.PRODUCT)
    folder = step.directory / "worker-1"
    assert (folder / "exit_code").read_text() == "255\n"
    assert (folder / "stdout.log").read_text() == "out\n\nend\n"
    assert (folder / "stderr.log").read_text() == "err\n"
    assert "[1] out" in notes
    assert not (step.directory / "worker-0").exists()


def test_the_arguments_of_a_command_reach_the_program_unchanged(server: tpu.Server, step: Step, create: Create) -> None:
    create()
    run(server, "printf", "%s\\n", "a  b", "$HOME", "-n", "'")
    assert (step.directory / "worker-0/stdout.log").read_text() == "a  b\n$HOME\n-n\n'\n"


def test_a_lost_worker_is_a_fault_of_the_infrastructure(server: tpu.Server, step: Step, create: Create) -> None:
    create(slices=2)
    server.lose_worker("x-1", 0)
    with pytest.raises(StepError, match="worker 1: the connection failed") as caught:
        run(server, "true")
    assert caught.value.cause is Cause.INFRASTRUCTURE
    assert (step.directory / "worker-0/exit_code").read_text() == "0\n"
    assert not (step.directory / "worker-1/exit_code").exists()


def test_a_worker_that_disappears_during_a_command_keeps_its_output(
    server: tpu.Server, step: Step, create: Create, notes: list[str]
) -> None:
    create(slices=2)

    def is_begun() -> bool:
        return {"[0] begun", "[1] begun"} <= {*notes}

    def lose() -> None:
        server.lose_worker("x-1", 0)
        (server.workers("x-0")[0].directory / "disk/topgallant/go").touch()

    losing = _when(is_begun, lose)
    with pytest.raises(StepError, match="worker 1: the connection failed") as caught:
        run(server, "echo begun; until test -e /var/lib/topgallant/go; do sleep 0.05; done; exit 3")
    losing.join()
    assert caught.value.cause is Cause.INFRASTRUCTURE
    logs = [(step.directory / f"worker-{worker}/stdout.log").read_text() for worker in (0, 1)]
    assert logs == ["begun\n", "begun\n"]
    assert (step.directory / "worker-0/exit_code").read_text() == "3\n"
    assert not (step.directory / "worker-1/exit_code").exists()


def test_a_cancelled_command_ends_on_the_worker(server: tpu.Server, create: Create, notes: list[str]) -> None:
    create()
    with cancellation.opened() as scope:
        canceller = _when(lambda: "[0] begun" in notes, lambda: scope.cancel("enough"))
        with pytest.raises(Cancelled):
            run(server, "echo begun; sleep 1234")
    canceller.join()  # until then, it ends all processes of this step
    run(server, "for i in $(seq 200); do pgrep -f 'sleep [1]234' || exit 0; sleep 0.05; done; exit 1")


def test_files_are_fetched_from_each_worker(server: tpu.Server, create: Create, tmp_path: Path) -> None:
    create(slices=2)
    run(server, "mkdir -p logs; echo home > logs/a; ln -s /etc/passwd logs/outside; echo root > /tmp/-b")
    Tpu().fetch("x", "logs", "/tmp/-b", directory=tmp_path / "out", ssh_port=server.ssh_port)
    for worker in ("worker-0", "worker-1"):
        assert (tmp_path / "out" / worker / "files/logs/a").read_text() == "home\n"
        assert (tmp_path / "out" / worker / "files/tmp/-b").read_text() == "root\n"
        assert not (tmp_path / "out" / worker / "files/logs/outside").is_symlink()


def test_a_file_that_is_missing_is_reported_and_the_others_are_fetched(
    server: tpu.Server, create: Create, tmp_path: Path
) -> None:
    create()
    run(server, "echo here > /tmp/here")
    with pytest.raises(StepError, match=r"worker 0: .*nowhere"):
        Tpu().fetch("x", "/nowhere", "/tmp/here", directory=tmp_path / "out", ssh_port=server.ssh_port)
    assert (tmp_path / "out/worker-0/files/tmp/here").read_text() == "here\n"


def test_a_tpu_is_requested_and_awaited_by_separate_commands(server: tpu.Server, step: Step, create: Create) -> None:
    assert "is requested" in create(wait=False, spot=True)
    assert not step.recorder.ledger.open_resources()[0].is_created
    Tpu().wait_ready("x", ssh_port=server.ssh_port, timeout=60)
    assert step.recorder.ledger.open_resources()[0].is_created
    run(server, "true")


def test_the_creation_of_the_same_tpu_adopts_it(server: tpu.Server, create: Create) -> None:
    before = len(server.history())
    create()
    create()
    assert len(server.history()) == before + 1


def test_a_list_has_the_state_the_owner_and_the_price(
    server: tpu.Server, create: Create, capsys: pytest.CaptureFixture[str]
) -> None:
    create(spot=True, labels={"team": "ml"})
    text = Tpu().list(project=PROJECT, api_endpoint=server.endpoint, format="csv")
    assert text is not None
    row = text.splitlines()[1].split(",")
    assert row[:6] == ["x", "node", ZONE, "v6e-1", "spot", "READY"]
    assert row[8] == "20261121-011343-x7k2"
    assert row[-1] == "0.544"
    Tpu().list(project=PROJECT, api_endpoint=server.endpoint)
    assert "us-central1-b" in capsys.readouterr().out


def test_a_tpu_of_another_user_is_deleted_only_by_force(
    server: tpu.Server, step: Step, create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(wait=False)
    resources = step.recorder.ledger
    assert isinstance(resources, Ledger)
    monkeypatch.setattr(resources, "_owner", Owner("run-2", "project", "eve", "elsewhere"))
    where: dict[str, Any] = {"project": PROJECT, "zone": ZONE, "api_endpoint": server.endpoint}
    with pytest.raises(StepError, match="another owner"):
        Tpu().delete("x", **where)
    assert Tpu().delete("x", **where, force=True).endswith("nodes/x is deleted")


def test_foreign_entries_of_the_ledger_are_skipped(step: Step) -> None:
    names = ["x", "projects/a/b", "projects/BAD/locations/us-central1-b/nodes/x"]
    for name in [*names, f"projects/{PROJECT}/locations/{ZONE}/nodes/x"]:
        step.recorder.ledger.plan(Resource("tpu_node", name, {"api_endpoint": 1}, 60, "delete"))
    with pytest.raises(UsageError, match="the ledger has no TPU with the name x"):
        Tpu().wait_ready("x")


@pytest.mark.usefixtures("step")
def test_a_missing_tpu_is_explained(server: tpu.Server) -> None:
    with pytest.raises(UsageError, match="the ledger has no TPU with the name nothing: pass --project and --zone"):
        Tpu().wait_ready("nothing")
    with pytest.raises(StepError, match="there is no TPU nothing in us-central1-b of my-project: `tpu list"):
        Tpu().wait_ready("nothing", project=PROJECT, zone=ZONE, api_endpoint=server.endpoint)


@pytest.mark.usefixtures("step")
@pytest.mark.parametrize(
    ("call", "fault"),
    [
        (lambda: Tpu().run("x", "true", workers="9", project="bad", zone=ZONE), "--project: 'bad' is not"),
        (lambda: Tpu().run("-x", "true"), "is not a name of a TPU"),
        (lambda: Tpu().run("x", "true", project=PROJECT, zone="here"), "--zone: 'here' is not a zone"),
        (lambda: Tpu().run("x", "true", ssh_user="-o"), "--ssh_user: '-o' is not a user"),
        (lambda: Tpu().fetch("x", "../x", project=PROJECT, zone=ZONE), "cannot be fetched"),
        (lambda: Tpu().list(project=PROJECT, api_endpoint="http://x"), "--api_endpoint"),
        (lambda: Tpu().create("x", project="bad", zone=["here"], runtime_version="x"), "--project: .*; --zone: "),
    ],
)
def test_a_wrong_argument_starts_nothing(call: Callable[[], str], fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        call()


def test_a_worker_that_does_not_exist_is_explained(server: tpu.Server, create: Create) -> None:
    create()
    with pytest.raises(UsageError, match="--workers: there is no worker 1: the TPU has 1 worker"):
        run(server, "true", workers="1")


def test_a_tpu_that_is_lost_while_it_becomes_ready_ends_the_wait(
    server: tpu.Server, create: Create, tmp_path: Path, notes: list[str]
) -> None:
    script = tmp_path / "start.sh"
    script.write_text("sleep 1000")
    _when(lambda: any("running" in note for note in notes), lambda: server.preempt("x"))
    with pytest.raises(StepError, match=r"preempted|SUSPENDING|SUSPENDED") as caught:
        create(startup_script_file=script, spot=True)
    assert caught.value.cause is Cause.INFRASTRUCTURE


def test_a_command_line_passes_the_words_after_two_dashes(server: tpu.Server, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "workspace")
    place = [f"--project={PROJECT}", f"--zone={ZONE}", f"--api_endpoint={server.endpoint}"]
    created = workspace.run(
        "tpu", "create", "y", *place, "--accelerator_type=v6e-1", "--runtime_version=v2-alpha-tpuv6e",
        f"--ssh_port={server.ssh_port}",
    )  # fmt: skip
    assert created.exit_code == 0, str(created)
    outcome = workspace.run(
        "tpu", "run", "y", f"--ssh_port={server.ssh_port}", "--", "printf", "<%s>", "--help", "--debug", "--x=1", "1.10"
    )
    assert outcome.exit_code == 0, str(outcome)
    assert "[0] <--help><--debug><--x=1><1.10>" in outcome.stdout
    assert re.search(r"artifacts: .*tpu__run", outcome.stdout)
    assert workspace.run("tpu", "delete", "y").exit_code == 0
    assert server.leftovers() == []


def test_a_command_cannot_find_the_word_that_marks_its_status(
    server: tpu.Server, create: Create, notes: list[str]
) -> None:
    create()
    run(server, "tr '\\0' '\\n' </proc/$PPID/cmdline; tr '\\0' '\\n' </proc/$PPID/environ; env; ls -l /proc/$$/fd")
    assert not any(re.search(r"topgallant-[0-9a-f]{32}", note) for note in notes)
    assert any("IFS= read" in note for note in notes)
