"""Signals interrupt a run, or are deferred; the tests send them to another process instead of the test runner."""

import signal

import pytest

from toolbox.ground.system import signals

from .conftest import Script

# `send` returns after the signal was handled: the handler runs in the main thread before its next line.
BEGIN = """
import logging, os, signal, time
from toolbox.ground.model.errors import Interrupted
from toolbox.ground.system import signals
logging.basicConfig(format="%(message)s")
signals.install()
def send(number): os.kill(os.getpid(), number)
"""
CAUGHT = "except Interrupted as error: print(error)"
WITH_CODE = "except Interrupted as error: print(error, int(error.exit_code), error.cause)"
TIMER = "print(signal.getitimer(signal.ITIMER_REAL), signals.first())"
PROGRAMS: dict[str, tuple[str, str]] = {
    "SIGINT is an exception with an exit code": (
        f"try: send(signal.SIGINT)\n{WITH_CODE}",
        "interrupted by SIGINT 130 interrupted\n",
    ),
    "SIGTERM is an exception with an exit code": (
        f"try: send(signal.SIGTERM)\n{WITH_CODE}",
        "interrupted by SIGTERM 143 interrupted\n",
    ),
    "SIGHUP is an exception with an exit code": (
        f"try: send(signal.SIGHUP)\n{WITH_CODE}",
        "interrupted by SIGHUP 143 interrupted\n",
    ),
    "the third signal stops the cleanup, but the second does not": (
        f"try:\n with signals.shielded():\n  for count in (1, 2, 3, 4): send(signal.SIGINT); print(count)\n{CAUGHT}",
        "1\n2\ninterrupted by SIGINT\n",
    ),
    "after the third signal, `check` raises in a shielded region too": (
        (
            "def arrived():\n try: signals.check()\n except Interrupted: return True\n"
            "def sent():\n try: send(15)\n except Interrupted: pass\n"
            "with signals.shielded():\n for _ in range(3): sent(); print(arrived(), signals.cleanup_has_ended())"
        ),
        "None False\nNone False\nTrue True\n",
    ),
    "a second signal does not raise after the first one has raised": (
        "try: send(signal.SIGINT)\nexcept Interrupted: print('first')\nsend(signal.SIGTERM)\nprint('cleaned')",
        "first\ncleaned\n",
    ),
    "the third signal is reported as the first": (
        (f"try:\n with signals.shielded():\n  for number in (15, 2, 2): send(number)\n{CAUGHT}"),
        "interrupted by SIGTERM\n",
    ),
    "an exposed region inside of a shielded one lets signals raise": (
        (
            "with signals.shielded():\n try:\n  with signals.exposed(): send(signal.SIGTERM); print('not reached')\n"
            " except Interrupted: print('raised')\n send(signal.SIGTERM); print('shielded again')"
        ),
        "raised\nshielded again\n",
    ),
    "a signal that arrived in a shielded region raises in an exposed region": (
        (
            "with signals.shielded():\n send(signal.SIGTERM)\n try:\n  with signals.exposed(): print('not reached')\n"
            f" {CAUGHT}"
        ),
        "interrupted by SIGTERM\n",
    ),
    "a deferred signal does not interrupt its region and is raised by `check`": (
        f"try:\n with signals.deferred(): send(signal.SIGINT); print('whole')\n signals.check()\n{CAUGHT}",
        "whole\ninterrupted by SIGINT\n",
    ),
    "a deferred signal is not raised in a shielded region": (
        "with signals.shielded(), signals.deferred(): send(signal.SIGINT); signals.check(); print('on')",
        "on\n",
    ),
    "a deadline is an interruption with an exit code of its own": (
        f"try:\n with signals.deadline(0.05): time.sleep(30)\n{WITH_CODE}",
        "the deadline of the run has passed 124 timeout\n",
    ),
    "a deadline that has not passed sets no timer after its block": (
        f"with signals.deadline(30): pass\n{TIMER}",
        "(0.0, 0.0) None\n",
    ),
    "no deadline sets no timer": (f"with signals.deadline(None): pass\n{TIMER}", "(0.0, 0.0) None\n"),
    "a deadline is removed if its block raises an error": (
        f"try:\n with signals.deadline(30): 1 / 0\nexcept ZeroDivisionError: pass\n{TIMER}",
        "(0.0, 0.0) None\n",
    ),
    "a deadline that is forgotten interrupts nothing more, but another signal does": (
        (
            "with signals.shielded():\n"
            " send(signal.SIGALRM)\n signals.forget_deadline()\n print(signals.first())\n signals.check()\n"
            " send(signal.SIGTERM)\n signals.forget_deadline()\n print(signals.first())"
        ),
        "None\n15\n",
    ),
    "a deadline does not interrupt the cleanup": (
        (
            "with signals.shielded(), signals.deadline(0.05):\n while not signals.first(): time.sleep(0.01)\n"
            " print('cleaned', signals.first() == signal.SIGALRM)"
        ),
        "cleaned True\n",
    ),
}


@pytest.mark.parametrize(("program", "printed"), PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_prints_the_expected_text(script: Script, program: str, printed: str) -> None:
    assert script(BEGIN + program).stdout == printed


def test_an_interrupt_is_not_caught_as_an_error(script: Script) -> None:
    done = script(BEGIN + "try: send(signal.SIGTERM)\nexcept Exception: print('caught')")
    assert (done.stdout, done.returncode) == ("", 1)


def test_a_shielded_region_continues_and_says_how_many_more_signals_stop_it(script: Script) -> None:
    sent = "send(signal.SIGTERM); send(signal.SIGINT); print('cleaned')"
    done = script(f"{BEGIN}with signals.shielded(): {sent}\nprint(signals.first())")
    assert done.stdout == "cleaned\n15\n"
    assert done.stderr.splitlines() == [
        "SIGTERM: the run is cleaning up; send 2 more to stop the cleanup",
        "SIGINT: the run is cleaning up; send 1 more to stop the cleanup",
    ]


def test_importing_the_module_sets_no_handler(script: Script) -> None:
    done = script("import signal\nbefore = signal.getsignal(2)\nfrom toolbox.ground.system import signals\n"
                  "print(signal.getsignal(2) is before)")  # fmt: skip
    assert done.stdout == "True\n"


def test_no_signal_has_arrived_in_this_process() -> None:
    assert signals.first() is None
    assert signal.getsignal(signal.SIGTERM) is not signals._handle


def test_a_signal_that_nohup_ignores_stays_ignored(script: Script) -> None:
    done = script(
        "import os, signal\nfrom toolbox.ground.system import signals\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\nsignals.install()\n"
        "os.kill(os.getpid(), signal.SIGHUP)\nprint('goes on', signals.first())"
    )
    assert done.stdout == "goes on None\n"


HAND_TO_ANOTHER_THREAD = """
import pathlib, sys, threading
from toolbox.ground.system import cancellation, processes
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
def test_a_signal_in_another_thread_ends_the_wait_of_the_main_thread(script: Script, waiting: str) -> None:
    """The system may deliver a signal to any thread; a system call of the main thread then continues."""
    done = script(BEGIN + HAND_TO_ANOTHER_THREAD.replace("WAIT", waiting))
    assert done.stdout == "interrupted by SIGTERM True\n"
