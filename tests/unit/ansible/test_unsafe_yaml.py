"""Ansible reads the YAML that Topgallant writes without expanding templates in values."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from toolbox.ansible import inventory, playbook, unsafe_yaml
from toolbox.ansible.unsafe_yaml import untrusted
from toolbox.ground.model.addresses import Address
from toolbox.ground.system import filesystem

TEXTS = [
    "{{ 7 * 7 }}",
    "{% set x = 7 %}{{ x * 7 }}",
    "#jinja2: variable_start_string: '[%', variable_end_string: '%]'\n[% 7 * 7 %]",
    "#jinja2:variable_start_string:'<<'\n<< 7 * 7 }}",
    "!unsafe x",
    "!vault x",
    "plain",
    "1.10",
    "0o17",
    "1_000",
    "12:30:45",
    "2024-01-31",
    "null",
    "~",
    "",
    "yes",
    "=",
    "<<",
    "*anchor",
    "a: b",
    "\ttab\n\u0085\u2028 \x07",
    "x" * 200 + "\n",
]
DATA = [*TEXTS, {text: text for text in TEXTS}, [None, True, 7, 0.5, Path("/a b")]]


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the values that Ansible reads from a play, from a file and from the inventory."""
    monkeypatch.setenv("ANSIBLE_PYTHON_INTERPRETER", sys.executable)
    play = [
        {
            "name": untrusted("{{ lookup('pipe', 'touch pwned') }}"),
            "hosts": inventory.TARGETS,
            "connection": "local",
            "gather_facts": False,
            "vars": {"value": untrusted(DATA)},
            "vars_files": untrusted([str(tmp_path / "{{ secret }}.yaml")]),
            "tasks": [
                {
                    "name": "Keep them",
                    "ansible.builtin.copy": {
                        "content": "{{ [value, from_file, ansible_user, ansible_play_name] | to_json }}",
                        "dest": f"{tmp_path}/seen-{{{{ inventory_hostname }}}}.json",
                        "mode": "0600",
                    },
                }
            ],
        }
    ]
    filesystem.write_text(tmp_path / "{{ secret }}.yaml", unsafe_yaml.dump({"from_file": untrusted(DATA)}))
    file = filesystem.write_text(tmp_path / "play.yaml", unsafe_yaml.dump(play))
    hosts = inventory.build([Address("node", TEXTS[0])])
    events: list[dict[str, Any]] = []
    request = playbook.Play(file, hosts, [tmp_path], filesystem.make_directory(tmp_path / "step"), tmp_path / "private")

    def keep(event: dict[str, Any]) -> bool:
        events.append(event)
        return False

    status = playbook.run(request, keep)
    assert status == 0, "\n".join(event.get("stdout", "") for event in events)
    return json.loads((tmp_path / "seen-node.json").read_text(encoding="utf-8"))


def test_ansible_reads_values_unchanged_with_their_types(seen: Any, tmp_path: Path) -> None:
    expected = [*DATA[:-1], [None, True, 7, 0.5, "/a b"]]
    assert seen == [expected, expected, TEXTS[0], "{{ lookup('pipe', 'touch pwned') }}"]
    assert list(tmp_path.rglob("pwned")) == []


def test_every_text_that_could_be_a_template_is_marked() -> None:
    marked = [text for text in TEXTS if unsafe_yaml.dump(untrusted(text)).startswith("!unsafe ")]
    assert set(TEXTS) - set(marked) == {"1.10", "1_000", "12:30:45", "2024-01-31", "null", "~", "", "yes", "=", "<<"}


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "all", "targets", "controller", "ungrouped"])
def test_a_host_does_not_get_a_name_that_ansible_reserves(host: str) -> None:
    assert inventory.name_of(Address(host)) == f"{host}-ssh"


def test_hosts_with_one_address_and_different_ports_have_different_names() -> None:
    assert [inventory.name_of(Address("a", None, port)) for port in (None, 22, 23)] == ["a", "a-22", "a-23"]
