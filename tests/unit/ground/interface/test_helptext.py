"""The help texts describe commands and groups."""

from pathlib import Path
from typing import Literal

from toolbox.ground.interface import helptext, signature
from toolbox.ground.interface.registry import Command, Group, GroupSummary


def deploy(
    name: str, mode: Literal["fast", "safe"] = "safe", *, out: Path, wait: bool = True, tag: str | None = None
) -> None:
    """
    Deploy a thing.

    It takes minutes.

    Args:
        name: of the thing.
        mode: how to deploy it, which is a longer story than fits into a single line of a terminal and so is wrapped.
        out: where to.
        wait: until it is ready.
        tag: of the image.
    """


COMMAND = Command("thing", "deploy", deploy, signature.of(deploy, name="thing deploy"), role="thing_deploy")


def test_the_help_of_a_command_explains_each_argument() -> None:
    assert (
        helptext.of_command(COMMAND)
        == """\
thing deploy: Deploy a thing.

It takes minutes.

usage: ./run_toolbox.py thing deploy NAME [--mode] --out=... [--wait] [--tag]

arguments:
  --name  (str; required)
      of the thing.
  --mode  (one of fast, safe; default: 'safe')
      how to deploy it, which is a longer story than fits into a single line of a terminal and so is
      wrapped.
  --out  (path; required)
      where to.
  --wait  (bool; default: true)
      until it is ready.
  --tag  (str or null; default: null)
      of the image.

The Ansible role roles/thing_deploy carries out this command."""
    )


def test_the_help_of_a_command_without_arguments() -> None:
    def nothing() -> None:
        """Do nothing."""

    command = Command("thing", "nothing", nothing, signature.of(nothing, name="thing nothing"), None)
    assert helptext.of_command(command) == "thing nothing: Do nothing.\n\nusage: ./run_toolbox.py thing nothing\n"


def test_a_group_lists_its_commands() -> None:
    text = helptext.of_group(Group("thing", "Things.", {"deploy": COMMAND}, {}))
    assert text.startswith("thing: Things.\n\nusage: ./run_toolbox.py thing COMMAND [--name=value ...]\n")
    assert "\n  deploy  Deploy a thing.\n" in text


def test_the_list_of_groups_marks_broken_groups() -> None:
    text = helptext.of_groups([GroupSummary("a", "First."), GroupSummary("long_name", "", "x.py: bad syntax")])
    assert "\n  a          First.\n" in text
    assert "\n  long_name  BROKEN: x.py: bad syntax\n" in text
