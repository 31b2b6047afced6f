"""A real headless Chromium, one per module, and pages in it that must not cause errors or foreign requests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


class Visit(Protocol):
    """A function that opens a file in the browser. Options such as `viewport` are those of a browser context."""

    def __call__(self, file: Path, *, at: str = "", **options: Any) -> Page:
        """Return the page of a file, opened at the fragment `at`."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Yield the Chromium that is installed on the system. No browser is downloaded.

    The event loop of playwright runs in this thread until the end of the fixture, so that no other test could use
    `asyncio.run`. Therefore the fixture does not last for the session.
    """
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install '.[test]'")
    if (program := shutil.which("chromium")) is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visit]:
    """Yield a function that opens pages. Console messages, errors, dialogs and foreign requests fail the test."""
    faults: list[str] = []
    contexts = []

    def opened(file: Path, *, at: str = "", **options: Any) -> Page:
        contexts.append(browser.new_context(**{"reduced_motion": "reduce", **options}))
        page = contexts[-1].new_page()
        page.on("console", lambda message: faults.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: faults.append(f"error: {error}"))
        page.on("dialog", lambda dialog: faults.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: faults.extend(_foreign(request.url, file)))
        page.goto(file.as_uri() + at)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert faults == []


def _foreign(url: str, file: Path) -> list[str]:
    is_own = url.partition("#")[0] == file.as_uri() or url.startswith("data:image/svg+xml,")
    return [] if is_own else [f"request: {url}"]
