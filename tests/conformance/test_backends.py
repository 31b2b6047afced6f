"""Requirements for every backend, on a real target: a workload runs as requested, and its files are collected."""

from __future__ import annotations

import hashlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conformance.conftest import BACKENDS, SITES
from tests.conformance.sites import Attempt, Bench, Orchestrator, wait_for, workload
from toolbox.ground.extensions.protocols import teardown_of
from toolbox.ground.model.errors import StepError
from toolbox.ground.model.secrets import Secret
from toolbox.ground.model.workloads import AttemptState, EndedBy
from toolbox.targets import staging


def test_every_backend_has_a_site() -> None:
    assert sorted(SITES) == BACKENDS


def test_the_exit_status_is_reported_and_saved(bench: Bench) -> None:
    attempt, outcome = bench.run("sh", "-c", "exit 255")
    assert (outcome.ended_by, outcome.exit_code, outcome.message) == (EndedBy.EXIT, 255, "")
    assert attempt.text("exit_code") == "255\n"
    assert 0 < outcome.seconds < 30


def test_an_end_by_a_signal_has_the_exit_status_of_a_shell(bench: Bench) -> None:
    _, outcome = bench.run("sh", "-c", "kill -USR1 $$")
    assert (outcome.ended_by, outcome.exit_code) == (EndedBy.SIGNAL, 128 + 10)


def test_both_streams_have_a_log(bench: Bench) -> None:
    attempt, _ = bench.run("sh", "-c", "echo out; echo err >&2; cat")
    assert (attempt.text(), attempt.text("stderr.log")) == ("out\n", "err\n")


def test_a_workload_that_prints_nothing_has_empty_logs_and_its_end_is_notified_once(bench: Bench) -> None:
    attempt, _ = bench.run("true")
    assert attempt.by.notified.count(attempt.handle.name) == 1
    assert [(attempt.directory / name).stat().st_size for name in ("stdout.log", "stderr.log")] == [0, 0]


def test_a_log_can_be_read_while_the_workload_runs(bench: Bench, tmp_path: Path) -> None:
    attempt = bench.start("sh", "-c", f"echo begun; until test -e {tmp_path}/go; do sleep 0.05; done; echo ended")
    attempt.printed("begun\n")
    assert attempt.by.status(attempt.handle).state is AttemptState.RUNNING
    (tmp_path / "go").touch()
    assert attempt.wait().exit_code == 0
    assert attempt.text() == "begun\nended\n"


def test_arguments_and_variables_arrive_as_they_are(bench: Bench) -> None:
    odd = "a 'b' \"c\" $HOME \\ * \n é 雪 "
    attempt, _ = bench.run("sh", "-c", 'printf "%s|%s" "$1" "$ODD"', "sh", odd, env={"ODD": odd})
    assert attempt.text() == f"{odd}|{odd}"


def test_an_argument_may_contain_any_bytes_if_the_target_accepts_them(bench: Bench) -> None:
    latin = "latin \udce9\udcff"
    if bench.site.takes_only_utf8:
        with pytest.raises(StepError, match=r"'latin \\udce9\\udcff' contains bytes that are not UTF-8"):
            bench.start("printf", "%s", latin)
        return
    attempt, _ = bench.run("printf", "%s", latin)
    assert (attempt.directory / "stdout.log").read_bytes() == os.fsencode(latin)


def test_a_workload_knows_its_directories(bench: Bench) -> None:
    attempt, _ = bench.run("sh", "-c", 'pwd; echo "$ARTIFACT_DIR"; echo "$TOPGALLANT_SRC"')
    assert attempt.text() == f"{attempt.seen}/files\n{attempt.seen}/files\n{attempt.seen}/src\n"


def test_a_workload_runs_in_the_requested_directory(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "over there").mkdir()
    attempt, _ = bench.run("pwd", cwd=str(tmp_path / "over there"))
    assert attempt.text() == f"{tmp_path}/over there\n"


def test_a_secret_arrives_and_is_in_no_log(bench: Bench) -> None:
    value = "correct-horse-battery"
    other = bench.orchestrator()
    other.secrets = [value]
    script = (
        'printf %s "$TOKEN" | sha256sum; echo "$TOKEN" >&2; printf %s "$TOKEN" | base64 >&2; '
        'printf "a ${TOKEN%%-*}"; sleep 0.3; echo "-${TOKEN#*-} b"'
    )
    attempt, _ = bench.run("sh", "-c", script, env={"TOKEN": Secret(value)}, by=other)
    assert attempt.text() == f"{hashlib.sha256(value.encode()).hexdigest()}  -\na *** b\n"
    assert attempt.text("stderr.log") == "***\n***\n"
    kept = [file for folder in {attempt.there, attempt.directory} for file in folder.rglob("*") if file.is_file()]
    for file in kept:
        with suppress(FileNotFoundError):  # a backend may remove its files after it has copied them
            assert value.encode() not in file.read_bytes(), file
    assert attempt.directory / "stdout.log" in kept


def test_files_and_texts_are_sent_along(bench: Bench, tmp_path: Path) -> None:
    sent = tmp_path / "sent"
    (sent / "folder/__pycache__").mkdir(parents=True)
    (sent / "folder/__pycache__/a.pyc").touch()
    (sent / "folder/name with spaces").write_text("one")
    (sent / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (sent / "run.sh").chmod(0o755)
    attempt, _ = bench.run(
        "sh",
        "-c",
        'cd "$TOPGALLANT_SRC"; find . -type f | sort; cat "deep/er/folder/name with spaces" written.txt; ./run.sh',
        files={"run.sh": sent / "run.sh", "deep/er/folder": sent / "folder"},
        text_files={"written.txt": "two\n", "sub/écrit": ""},
    )
    assert attempt.text("stderr.log") == ""
    assert attempt.text() == ("./deep/er/folder/name with spaces\n./run.sh\n./sub/écrit\n./written.txt\nonetwo\nran\n")


def test_a_workload_cannot_change_unnoticed_what_it_is_judged_by(bench: Bench) -> None:
    attempt, outcome = bench.run("sh", "-c", "echo changed > ../src/expected", text_files={"expected": "sent"})
    assert outcome.exit_code == 0
    is_changed = (attempt.directory / "src/expected").read_text() != "sent"
    assert is_changed is not bench.site.is_apart
    assert staging.changed_files(attempt.workload, attempt.directory) == ({"src/expected"} if is_changed else set())


MAKE_RESULTS = """
mkdir -p deep/er empty
for file in a.json deep/b.json deep/er/c.json deep/er/d.txt .hidden; do echo "$file" > "$file"; done
ln -s a.json deep/er/link.json
"""


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (("**/*.json",), ["a.json", "deep/b.json", "deep/er/c.json", "deep/er/link.json"]),
        (("*.json", "deep/er"), ["a.json", "deep/er/c.json", "deep/er/d.txt", "deep/er/link.json"]),
        ((), []),
    ],
)
def test_only_matching_files_are_collected(bench: Bench, patterns: tuple[str, ...], expected: list[str]) -> None:
    attempt, _ = bench.run("sh", "-c", MAKE_RESULTS, collect=patterns)
    results = attempt.directory / "files"
    found = [path for path in results.rglob("*") if path.is_symlink() or not path.is_dir()]
    assert sorted(str(path.relative_to(results)) for path in found) == sorted(expected)
    assert all(path.is_symlink() or path.read_text().strip() == str(path.relative_to(results)) for path in found)


def test_files_with_any_name_are_collected(bench: Bench) -> None:
    names = [" a b ", "line\nbreak", "été 雪", "-rf", "--checkpoint=1", "back\\slash\\n", "'\"$`*"]
    latin = "latin \udce9\udcff"
    script = r"""for name in "$@" "$(printf 'latin \351\377')"; do printf %s "$name" > "./$name"; done"""
    attempt, _ = bench.run("sh", "-c", script, "sh", *names)
    found = {path.name: path.read_bytes() for path in (attempt.directory / "files").iterdir()}
    assert found == {name: os.fsencode(name) for name in [*names, latin]}


def test_an_unreadable_file_does_not_prevent_the_collection_of_others(bench: Bench) -> None:
    script = "echo 1 > a; echo 2 > b; echo 3 > c; mkdir -p d e; echo 4 > d/f; chmod 500 d; chmod 0 b e"
    attempt, outcome = bench.run("sh", "-c", script, collect=("a", "b", "c"))
    assert outcome.exit_code == 0
    assert (attempt.text("files/a"), attempt.text("files/c")) == ("1\n", "3\n")


def test_files_may_be_collected_again(bench: Bench) -> None:
    attempt, _ = bench.run("sh", "-c", "mkdir a; echo 1 > a/b; ln -s a/b c; ln a/b d")
    attempt.collect()
    assert [attempt.text(f"files/{name}") for name in ("a/b", "c", "d")] == ["1\n"] * 3


def test_many_files_and_a_large_one_are_collected(bench: Bench) -> None:
    source = """
import os
os.mkdir("many")
for number in range(5000):
    with open(f"many/{number}.txt", "w") as stream:
        stream.write(str(number))
with open("large", "wb") as stream:
    stream.write(os.urandom(1 << 20) * 20)
"""
    attempt, _ = bench.run("python3", "-c", source)
    results = attempt.directory / "files"
    assert sorted(int(path.read_text()) for path in (results / "many").iterdir()) == list(range(5000))
    assert (results / "large").stat().st_size == 20 << 20


def test_repeated_submissions_of_one_name_are_one_workload(bench: Bench, tmp_path: Path) -> None:
    script = f"echo ran >> {tmp_path}/runs; until test -e {tmp_path}/go; do sleep 0.05; done; echo done"
    first = bench.start("sh", "-c", script)
    again = bench.start("sh", "-c", script)
    (tmp_path / "go").touch()
    assert first.wait() == again.wait()
    assert bench.start("sh", "-c", script).wait() == first.wait()
    assert (tmp_path / "runs").read_text() == "ran\n"
    assert first.text() == "done\n"


def test_concurrent_submissions_of_one_name_are_one_workload(bench: Bench, tmp_path: Path) -> None:
    """The second submission does not change the files of the first one, which the workload reads."""
    (tmp_path / "data").write_bytes(b"a" * (8 << 20))
    script = f'echo ran >> {tmp_path}/runs; for _ in $(seq 20); do md5sum < "$TOPGALLANT_SRC/data"; done'
    barrier = threading.Barrier(2)

    def submit(by: Orchestrator) -> Attempt:
        barrier.wait()
        return bench.start("sh", "-c", script, by=by, files={"data": tmp_path / "data"})

    with ThreadPoolExecutor(2) as threads:
        attempts = list(threads.map(submit, [bench.orchestrator(), bench.orchestrator()]))
    assert attempts[0].wait() == attempts[1].wait()
    assert (tmp_path / "runs").read_text() == "ran\n"
    assert attempts[0].text("stderr.log") == ""
    assert set(attempts[0].text().splitlines()) == {hashlib.md5(b"a" * (8 << 20)).hexdigest() + "  -"}


def test_many_workloads_run_side_by_side(bench: Bench, tmp_path: Path) -> None:
    script = f"touch {tmp_path}/up-$1; until test -e {tmp_path}/go; do sleep 0.1; done; exit $1"
    attempts = bench.start_all(["sh", "-c", script, "sh", str(n)] for n in range(10))
    wait_for(lambda: len(list(tmp_path.glob("up-*"))) == 10, "10 running workloads")
    (tmp_path / "go").touch()
    assert [attempt.wait().exit_code for attempt in attempts] == list(range(10))


def test_an_attempt_is_found_by_its_name(bench: Bench) -> None:
    backend = bench.shared.backend
    assert backend.find(workload("true"), "nobody", bench.directory / "nobody") is None
    attempt = bench.start("sh", "-c", "echo up; sleep 60")
    attempt.printed("up")
    other = bench.orchestrator()
    found = other.backend.find(attempt.workload, attempt.handle.name, attempt.directory)
    assert found == attempt.handle
    assert other.status(found).state is AttemptState.RUNNING
    attempt.cancel()
    assert other.end_of(found).outcome == attempt.wait()


def test_an_ended_attempt_is_found_with_its_outcome(bench: Bench) -> None:
    attempt, outcome = bench.run("sh", "-c", "exit 5")
    other = bench.orchestrator()
    found = other.backend.find(attempt.workload, attempt.handle.name, attempt.directory)
    assert found is not None
    assert other.end_of(found).outcome == outcome


def test_a_release_leaves_nothing_on_another_machine(bench: Bench) -> None:
    attempt, _ = bench.run("sh", "-c", "mkdir -p a/b && touch a/b/c && chmod 500 a/b a")
    attempt.by.backend.release(attempt.handle)
    assert attempt.text("exit_code") == "0\n"
    assert bench.site.remains(attempt.handle) == []
    assert attempt.by.notified.count(attempt.handle.name) == 1


def test_the_teardown_of_a_run_leaves_nothing_on_the_target(bench: Bench) -> None:
    by = bench.orchestrator("leaving")
    by.secrets = ["correct-horse-battery"]
    attempt, _ = bench.run("true", by=by, text_files={"a": "b"}, env={"TOKEN": Secret("correct-horse-battery")})
    by.backend.release(attempt.handle)
    if (teardown_run := teardown_of(by.backend)) is not None:
        teardown_run()
    assert bench.site.remains(attempt.handle) == []
    assert bench.site.remains_of("leaving") == []
