"""Fixtures of the core's tests that tests of features use too."""

from tests.browser.conftest import browser as browser  # noqa: PLC0414  # re-exports the fixture
from tests.browser.conftest import visit as visit  # noqa: PLC0414
from tests.functional.conftest import small as small  # noqa: PLC0414
