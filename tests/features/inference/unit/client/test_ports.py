"""No two workers on a machine choose the same port for their servers."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from toolbox.features.inference.client import ports
from toolbox.features.inference.client.ports import PortReservations


@pytest.fixture
def reservations() -> Iterator[tuple[PortReservations, PortReservations]]:
    both = PortReservations(), PortReservations()
    yield both
    for each in both:
        each.release()


def only(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    """Let workers choose one port only."""
    monkeypatch.setattr(ports, "LOWEST", port)
    monkeypatch.setattr(ports, "HIGHEST", port)


def unused() -> int:
    with socket.create_server(("", 0)) as listener:
        return int(listener.getsockname()[1])


def test_ports_are_below_those_of_outgoing_connections(reservations: tuple[PortReservations, PortReservations]) -> None:
    chosen = reservations[0].choose(20)
    assert len(set(chosen)) == 20
    assert all(20_000 <= port < 32_768 for port in chosen)


def test_a_port_is_chosen_by_one_worker_at_a_time(
    reservations: tuple[PortReservations, PortReservations], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = reservations
    only(monkeypatch, unused())
    (port,) = first.choose(1)
    assert port == ports.LOWEST
    assert second.choose(1) != [port]
    first.release()
    assert second.choose(1) == [port]


def test_a_port_on_which_a_program_listens_is_not_chosen(
    reservations: tuple[PortReservations, PortReservations], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        only(monkeypatch, port)
        assert not ports.is_free(port)
        assert reservations[0].choose(1) != [port]
