"""An ambient value belongs to the current context or to the process."""

from concurrent.futures import ThreadPoolExecutor

from toolbox.ground.system.context_values import ContextValue


def test_a_value_is_current_inside_its_block() -> None:
    ambient: ContextValue[str] = ContextValue("test")
    assert ambient.get() is None
    with ambient.entered("a"):
        with ambient.entered("b"):
            assert ambient.get() == "b"
        assert ambient.get() == "a"
    assert ambient.get() is None


def test_an_empty_value_is_a_value() -> None:
    ambient: ContextValue[str] = ContextValue("test")
    with ambient.entered_by_process("process"), ambient.entered(""):
        assert ambient.get() == ""


def test_a_thread_without_a_context_finds_only_the_value_of_the_process() -> None:
    ambient: ContextValue[str] = ContextValue("test")
    with ThreadPoolExecutor() as threads:
        with ambient.entered_by_process("process"):
            with ambient.entered("context"):
                assert threads.submit(ambient.get).result() == "process"
            assert threads.submit(ambient.get).result() == "process"
        with ambient.entered("context"):
            assert threads.submit(ambient.get).result() is None


def test_the_value_of_the_process_is_restored() -> None:
    ambient: ContextValue[str] = ContextValue("test")
    with ThreadPoolExecutor(1) as pool, ambient.entered_by_process("outer"):
        with ambient.entered_by_process("inner"):
            assert (ambient.get(), pool.submit(ambient.get).result()) == ("inner", "inner")
        assert (ambient.get(), pool.submit(ambient.get).result()) == ("outer", "outer")
