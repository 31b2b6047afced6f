"""Without its helper processes, Ansible is started as an ordinary program."""

from __future__ import annotations

import errno
from typing import NoReturn

import pytest

from toolbox.ansible import warm
from toolbox.ground.system import scratch


def test_without_space_for_the_helpers_ansible_starts_slowly(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full() -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.delenv(warm.SWITCH, raising=False)
    monkeypatch.setattr(scratch, "directory", full)
    with warm.opened():
        assert warm.current() is None
    assert caplog.messages == [
        "Ansible starts slowly, as an ordinary program: [Errno 28] No space left on device",
    ]
