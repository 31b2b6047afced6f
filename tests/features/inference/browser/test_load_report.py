"""The report of a run with loads opens without errors on all screens."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser import test_report
from tests.browser.conftest import Visit
from tests.features.inference.fakes.load_runs import loaded

pytestmark = pytest.mark.live


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", test_report.SIZES)
def test_the_page_opens_without_errors_and_fits_the_screen(
    visit: Visit, tmp_path: Path, size: str, scheme: str
) -> None:
    test_report.test_every_page_opens_without_errors_and_fits_the_screen(visit, tmp_path, loaded, size, scheme)
