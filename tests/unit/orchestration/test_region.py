"""The current parallel region belongs to the context of a thread."""

import contextvars
from concurrent.futures import ThreadPoolExecutor

from toolbox.orchestration.parallel import region


def test_outside_of_a_region_the_name_is_none() -> None:
    assert region.get() is None


def test_the_innermost_region_is_current() -> None:
    with region.entered("outer"):
        with region.entered("inner"):
            assert region.get() == "inner"
        assert region.get() == "outer"
    assert region.get() is None


def test_a_thread_is_in_the_region_only_with_its_context() -> None:
    with region.entered("deploy"), ThreadPoolExecutor() as threads:
        assert threads.submit(contextvars.copy_context().run, region.get).result() == "deploy"
        assert threads.submit(region.get).result() is None
