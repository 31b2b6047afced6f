"""A real Chromium without a window, one a worker, and pages in it that have to stay clean."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


class Visit(Protocol):
    """Opens a file, at a place of it. The options are those of a context: `viewport`, `color_scheme`, ..."""

    def __call__(self, file: Path, *, at: str = "", **options: Any) -> Page:
        """Return the page."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The browser of the system: none is downloaded."""
    playwright = pytest.importorskip("playwright.sync_api", reason="there is no playwright: pip install '.[test]'")
    if (program := shutil.which("chromium")) is None:
        pytest.skip("there is no chromium: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visit]:
    """Open pages. What the console says of them, what throws in them and what they ask for fails the test."""
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
