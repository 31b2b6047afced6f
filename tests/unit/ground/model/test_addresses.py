"""Addresses of hosts and users are parsed and validated."""

import pytest

from toolbox.ground.model import addresses
from toolbox.ground.model.addresses import Address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("node", Address("node")),
        ("gpu_1.example.com.", Address("gpu_1.example.com.")),
        ("ci@10.0.0.7:2222", Address("10.0.0.7", "ci", 2222)),
        ("first.last_example@tpu-7", Address("tpu-7", "first.last_example")),
        ("[::1]", Address("::1")),
        ("root@[2001:db8::7]:65535", Address("2001:db8::7", "root", 65535)),
    ],
)
def test_an_address_is_parsed_and_rendered(text: str, address: Address) -> None:
    assert Address.parse(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{{ lookup('pipe', 'id') }}",
        "{{lookup('pipe','id')}}",
        "{{x}}@node",
        "#jinja2:",
        "-oProxyCommand=id",
        "ci@-oProxyCommand=id",
        "-l@node",
        "@node",
        "..",
        ".",
        "a..b",
        ".hidden",
        "../node",
        "a/b",
        "a b",
        " node",
        "node\n",
        "node\x1b[31m",
        "node\0",
        "node;id",
        "$(id)",
        "`id`",
        "node[1:3]",
        "::1",
        "[::1",
        "[]",
        "[node]",
        "[fe80::1%eth0]",
        "1:2:3",
        "300.1.1.1",
        "12",
        "a@b@node",
        "ci@",
        "node:",
        "node:ssh",
        "node:0",
        "node:65536",
        "node:\u0661",
        "n\u00f6de",
        "!node",
        "*",
        "~node",
        "a,b",
        "x" * 254,
        "x" * 65 + "@node",
    ],
)
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a (host|user)"):
        Address.parse(text)


@pytest.mark.parametrize("text", ["[::1]", "::1"])
def test_brackets_are_not_needed_if_no_port_can_follow(text: str) -> None:
    assert addresses.host(text) == "::1"
