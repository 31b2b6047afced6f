"""SIGINT and SIGTERM, sent for real to a process of their own: here they would reach the test runner."""

import signal

import pytest

from toolbox.system import signals

from .conftest import Script

# `send` returns when the signal has been handled: the handler runs in the main thread, before its next line.
BEGIN = """
import logging, os, signal
from toolbox.model.errors import Interrupted
from toolbox.system import signals
logging.basicConfig(format="%(message)s")
signals.install()
def send(number): os.kill(os.getpid(), number)
"""


@pytest.mark.parametrize(("number", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_is_an_exception_with_its_exit_code(script: Script, number: str, code: int) -> None:
    done = script(
        BEGIN + f"try: send(signal.{number})\nexcept Interrupted as error: print(error, int(error.exit_code))"
    )
    assert done.stdout == f"interrupted by {number} {code}\n"


def test_an_interrupt_is_not_caught_as_an_error(script: Script) -> None:
    done = script(BEGIN + "try: send(signal.SIGTERM)\nexcept Exception: print('caught')")
    assert done.stdout == ""
    assert done.returncode == 1


def test_a_shielded_region_goes_on_and_the_signal_is_remembered(script: Script) -> None:
    done = script(BEGIN + "with signals.shielded(): send(signal.SIGTERM); print('cleaned')\nprint(signals.first())")
    assert done.stdout == "cleaned\n15\n"
    assert "SIGTERM: the run is ending and cleans up" in done.stderr


def test_a_second_signal_does_not_stop_the_cleanup_and_the_third_does(script: Script) -> None:
    done = script(
        BEGIN + "try:\n"
        " with signals.shielded():\n"
        "  for count in (1, 2, 3, 4): send(signal.SIGINT); print(count)\n"
        "except Interrupted as error: print(error)"
    )
    assert done.stdout == "1\n2\ninterrupted by SIGINT\n"


def test_the_second_signal_after_one_that_raised_does_not_raise(script: Script) -> None:
    done = script(
        BEGIN + "try: send(signal.SIGINT)\nexcept Interrupted: print('first')\nsend(signal.SIGTERM)\nprint('cleaned')"
    )
    assert done.stdout == "first\ncleaned\n"


def test_the_third_signal_is_reported_as_the_first(script: Script) -> None:
    done = script(
        BEGIN + "with signals.shielded():\n"
        " send(signal.SIGTERM); send(signal.SIGINT)\n"
        " try: send(signal.SIGINT)\n"
        " except Interrupted as error: print(error)"
    )
    assert done.stdout == "interrupted by SIGTERM\n"


def test_an_exposed_region_inside_of_a_shielded_one_lets_signals_raise(script: Script) -> None:
    done = script(
        BEGIN + "with signals.shielded():\n"
        " try:\n"
        "  with signals.exposed(): send(signal.SIGTERM); print('not reached')\n"
        " except Interrupted: print('raised')\n"
        " send(signal.SIGTERM); print('shielded again')"
    )
    assert done.stdout == "raised\nshielded again\n"


def test_a_signal_that_was_held_back_raises_where_it_is_let_in(script: Script) -> None:
    done = script(
        BEGIN + "with signals.shielded():\n"
        " send(signal.SIGTERM)\n"
        " try:\n"
        "  with signals.exposed(): print('not reached')\n"
        " except Interrupted as error: print(error)"
    )
    assert done.stdout == "interrupted by SIGTERM\n"


def test_importing_the_module_sets_no_handler(script: Script) -> None:
    done = script("import signal\nbefore = signal.getsignal(2)\nfrom toolbox.system import signals\n"
                  "print(signal.getsignal(2) is before)")  # fmt: skip
    assert done.stdout == "True\n"


def test_no_signal_has_arrived_here() -> None:
    assert signals.first() is None
    assert signal.getsignal(signal.SIGTERM) is not signals._handle


def test_a_terminal_that_is_gone_ends_a_run_as_a_request_to_end_does(script: Script) -> None:
    done = script(BEGIN + "try: send(signal.SIGHUP)\nexcept Interrupted as error: print(error, int(error.exit_code))")
    assert done.stdout == "interrupted by SIGHUP 143\n"


def test_what_nohup_has_had_ignored_stays_ignored(script: Script) -> None:
    done = script(
        "import os, signal\nfrom toolbox.system import signals\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\nsignals.install()\n"
        "os.kill(os.getpid(), signal.SIGHUP)\nprint('goes on', signals.first())"
    )
    assert done.stdout == "goes on None\n"


def test_the_warning_counts_how_many_more_it_takes(script: Script) -> None:
    done = script(BEGIN + "with signals.shielded():\n send(signal.SIGTERM); send(signal.SIGINT)")
    assert done.stderr.splitlines() == [
        "SIGTERM: the run is ending and cleans up; 2 more to stop that too",
        "SIGINT: the run is ending and cleans up; 1 more to stop that too",
    ]


def test_a_deferred_signal_tears_nothing_apart_and_is_raised_where_it_is_asked_for(script: Script) -> None:
    done = script(
        BEGIN + "try:\n"
        " with signals.deferred(): send(signal.SIGINT); print('whole')\n"
        " signals.check()\n"
        "except Interrupted as error: print(error)"
    )
    assert done.stdout == "whole\ninterrupted by SIGINT\n"
    assert done.stderr == ""


def test_a_deferred_signal_is_not_raised_in_a_shielded_region(script: Script) -> None:
    done = script(
        BEGIN + "with signals.shielded(), signals.deferred(): send(signal.SIGINT); signals.check(); print('on')"
    )
    assert done.stdout == "on\n"


HAND_TO_ANOTHER_THREAD = """
import pathlib, sys, threading, time
from toolbox.system import cancellation, processes
def hand_over():
    time.sleep(0.3)
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    time.sleep(60)
threading.Thread(target=hand_over, daemon=True).start()
begin = time.monotonic()
try: WAIT
except Interrupted as error: print(error, time.monotonic() - begin < 30, flush=True)
os._exit(0)
"""


@pytest.mark.parametrize(
    "waiting",
    [
        "processes.run(['sleep', '60'], env=processes.environment(pathlib.Path.cwd()), on_line=print)",
        "cancellation.current().sleep(60)",
    ],
    ids=["for a process", "for a while"],
)
def test_a_signal_that_the_system_hands_to_another_thread_ends_the_waiting(script: Script, waiting: str) -> None:
    """The system may choose any thread; a system call of the main one then goes on."""
    done = script(BEGIN + HAND_TO_ANOTHER_THREAD.replace("WAIT", waiting))
    assert done.stdout == "interrupted by SIGTERM True\n"


def test_a_deadline_is_an_interruption_with_an_exit_code_of_its_own(script: Script) -> None:
    done = script(
        BEGIN + "import time\n"
        "try:\n"
        " with signals.deadline(0.05): time.sleep(30)\n"
        "except Interrupted as error: print(error, int(error.exit_code), error.cause)"
    )
    assert done.stdout == "the deadline of the run has passed 124 timeout\n"


@pytest.mark.parametrize("seconds", ["30", "None"])
def test_a_deadline_that_was_kept_interrupts_nothing_later(script: Script, seconds: str) -> None:
    done = script(
        BEGIN + f"with signals.deadline({seconds}): pass\nprint(signal.getitimer(signal.ITIMER_REAL), signals.first())"
    )
    assert done.stdout == "(0.0, 0.0) None\n"


def test_a_deadline_is_taken_back_whatever_ends_the_body(script: Script) -> None:
    done = script(
        BEGIN + "try:\n with signals.deadline(30): 1 / 0\nexcept ZeroDivisionError: pass\n"
        "print(signal.getitimer(signal.ITIMER_REAL))"
    )
    assert done.stdout == "(0.0, 0.0)\n"


def test_a_deadline_does_not_tear_the_cleanup_apart(script: Script) -> None:
    done = script(
        BEGIN + "import time\n"
        "with signals.shielded(), signals.deadline(0.05):\n"
        " while not signals.first(): time.sleep(0.01)\n"
        " print('cleaned', signals.first() == signal.SIGALRM)"
    )
    assert done.stdout == "cleaned True\n"
