"""The address of a gRPC server says whether it has TLS, and an API key needs TLS."""

from __future__ import annotations

import pytest

from toolbox.features.inference.client.server_addresses import AddressError, GrpcAddress


def test_the_scheme_grpcs_stands_for_tls() -> None:
    assert GrpcAddress.parsed("grpcs://host.example:80") == GrpcAddress("host.example:80", has_tls=True)
    assert GrpcAddress.parsed("[::1]:{grpc_port}") == GrpcAddress("[::1]:{grpc_port}", has_tls=False)


@pytest.mark.parametrize(
    "text", ["", "host", "http://host:1", "host:", "host:x", "a@host:1", "h/x:1", "grpcs://:1", "::1:1"]
)
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(AddressError, match="must be HOST:PORT or grpcs://HOST:PORT"):
        GrpcAddress.parsed(text)


@pytest.mark.parametrize("text", ["127.0.0.1:1", "127.9.9.9:1", "localhost:1", "[::1]:1", "grpcs://host:1"])
def test_a_key_may_be_sent_with_tls_or_on_one_machine(text: str) -> None:
    GrpcAddress.parsed(text).check_key()


@pytest.mark.parametrize("text", ["host:1", "10.0.0.1:1", "0.0.0.0:1", "localhost.example:1", "127.0.0.1.example:1"])
def test_a_key_is_not_sent_to_another_machine_in_plain_text(text: str) -> None:
    with pytest.raises(AddressError, match=f"`grpc` must be grpcs://{text}, because the API key"):
        GrpcAddress.parsed(text).check_key()
