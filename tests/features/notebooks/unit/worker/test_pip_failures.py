"""The output of pip tells requirements that cannot be installed apart from an index that does not answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolbox.features.notebooks.worker import pip_failures
from toolbox.features.notebooks.worker.notebook_results import Fault

NOT_FOUND = [
    "ERROR: Could not find a version that satisfies the requirement nowhere (from versions: none)",
    "ERROR: No matching distribution found for nowhere",
]
REFUSED = (
    "WARNING: Retrying (Retry(total={}, connect=None, read=None, redirect=None)) after connection broken by "
    "'NewConnectionError('<...>: Failed to establish a new connection: [Errno 111] Connection refused')': /simple/a/"
)
NO_ANSWER = [
    REFUSED.format(0),
    "WARNING: Retrying (Retry(total=0, connect=None)) after connection broken by 'NameResolutionError(...)': /simple/",
    "ERROR: HTTPSConnectionPool(host='h', port=443): Max retries exceeded with url: /a (Caused by ...)",
    "  Could not fetch URL https://h/simple/a/: There was a problem confirming the ssl certificate: x - skipping",
    "ERROR: HTTP error 503 while getting https://h/a.whl",
    "  Could not fetch URL http://h/simple/a/: 502 Server Error: Bad Gateway for url: http://h/simple/a/ - skipping",
    "pip._vendor.urllib3.exceptions.ReadTimeoutError: HTTPSConnectionPool(host='h', port=443): Read timed out.",
]


def test_a_requirement_that_does_not_exist_is_a_fault_of_the_environment() -> None:
    fault, message = pip_failures.explain(["Looking in indexes: x", *NOT_FOUND], "python3")
    assert fault is Fault.ENVIRONMENT
    assert "No matching distribution found for nowhere" in message


@pytest.mark.parametrize("line", NO_ANSWER)
def test_an_index_that_does_not_answer_is_a_fault_of_the_server(line: str) -> None:
    fault, message = pip_failures.explain([line, *NOT_FOUND], "python3")
    assert fault is Fault.SERVER
    assert message.startswith("the package index does not answer: ")


def test_an_attempt_that_was_repeated_with_success_is_not_the_reason() -> None:
    assert pip_failures.explain([REFUSED.format(1), *NOT_FOUND], "python3")[0] is Fault.ENVIRONMENT


def test_a_404_of_the_index_is_not_an_index_that_does_not_answer() -> None:
    line = "  Could not fetch URL http://h/simple/a/: 404 Client Error: Not Found for url: http://h/a - skipping"
    assert pip_failures.explain([line, *NOT_FOUND], "python3")[0] is Fault.ENVIRONMENT


def test_an_index_that_refuses_a_request_is_named() -> None:
    line = "Could not fetch URL http://h/simple/a/: 401 Client Error: Unauthorized for url: http://h/ - skipping"
    fault, message = pip_failures.explain([*NOT_FOUND, line], "python3")
    assert fault is Fault.ENVIRONMENT
    assert "401 Client Error: Unauthorized" in message


def test_pages_that_were_not_fetched_are_read_from_the_log_of_pip(tmp_path: Path) -> None:
    line = "Could not fetch URL http://h/simple/{}/: {} for url: http://h/ - skipping"
    log = [line.format("a", "404 Client Error"), "noise", *2 * [line.format("b", "503 Server Error")]]
    (tmp_path / "log").write_text("".join(f"2026-11-23T23:54:00,123 {text}\n" for text in log))
    assert pip_failures.unfetched(tmp_path / "log") == [line.format("b", "503 Server Error")]
    assert pip_failures.unfetched(tmp_path / "missing") == []


def test_without_an_error_of_pip_the_last_line_is_shown() -> None:
    assert pip_failures.explain(["Segmentation fault", ""], "python3")[1].endswith(": Segmentation fault")


@pytest.mark.parametrize("line", ["was not created because ensurepip is not", "/usr/bin/python3: No module named venv"])
def test_a_python_without_venv_names_the_package_of_debian(line: str) -> None:
    fault, message = pip_failures.explain([line, "available.  On Debian/Ubuntu systems,"], "/usr/bin/python3")
    assert fault is Fault.ENVIRONMENT
    assert "apt-get install python3-venv" in message


def test_a_full_disk_is_noticed() -> None:
    assert pip_failures.is_disk_full(["ERROR: Could not install packages: [Errno 28] No space left on device"])
    assert not pip_failures.is_disk_full(NOT_FOUND)


def test_credentials_of_urls_are_masked() -> None:
    assert pip_failures.masked("Looking in https://u:p@h/simple") == "Looking in https://****@h/simple"
