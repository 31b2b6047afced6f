"""A secret is shown as `***` when it is printed, logged, dumped, formatted or pickled."""

import copy
import json
import logging
import pickle
from collections.abc import Callable

import pytest
import yaml

from toolbox.ground.model import yaml_text
from toolbox.ground.model.secrets import MASK, Secret
from toolbox.ground.system import filesystem

VALUE = "hunter2-héhé"

SHOWN_BY: dict[str, Callable[[Secret], str]] = {
    "str": str,
    "repr": repr,
    "format": "{}".format,
    "format with a conversion": "{!r:>10}".format,
    "percent": lambda secret: "%s" % secret,  # noqa: UP031  # users write it
    "repr of a list": lambda secret: repr([secret]),
    "repr of a mapping": lambda secret: repr({"key": secret}),
    "json": lambda secret: json.dumps({"key": secret}, default=str),
    "json of Topgallant": lambda secret: filesystem.dump_json({"key": secret}),
    "yaml of Topgallant": lambda secret: yaml_text.dump({"key": secret}),
    "yaml": yaml.dump,
    "repr of an exception": lambda secret: repr(ValueError(secret)),
    "pickle": lambda secret: repr(pickle.dumps(secret)),
}


@pytest.mark.parametrize("show", SHOWN_BY.values(), ids=SHOWN_BY)
def test_a_secret_is_shown_as_stars(show: Callable[[Secret], str]) -> None:
    text = show(Secret(VALUE))
    assert MASK in text
    assert "hunter2" not in text


def test_a_width_pads_the_stars_and_not_the_value() -> None:
    assert f"{Secret('a value that is longer than that'):>10}" == "       ***"


def test_a_log_line_has_stars(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("toolbox").warning("token %s, %r", Secret(VALUE), {"token": Secret(VALUE)})
    assert caplog.messages == ["token ***, {'token': ***}"]


def test_a_pickled_secret_comes_back_without_its_value() -> None:
    assert pickle.loads(pickle.dumps(Secret(VALUE))).reveal() == MASK


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_in_this_process_keeps_the_value(copied: Callable[[Secret], Secret]) -> None:
    assert copied(Secret(VALUE)).reveal() == VALUE


def test_a_secret_cannot_be_written_as_json() -> None:
    with pytest.raises(TypeError):
        json.dumps(Secret(VALUE))


def test_yaml_contains_the_reference_of_a_secret() -> None:
    dumped = yaml_text.dump({"token": Secret(VALUE, reference="*$@secrets.token")})
    assert yaml.safe_load(dumped) == {"token": "*$@secrets.token"}


def test_a_value_is_read_once_and_only_when_it_is_revealed() -> None:
    reads: list[str] = []
    secret = Secret(lambda: reads.append("read") or VALUE)  # type: ignore[func-returns-value]
    assert (str(secret), reads) == (MASK, [])
    assert (secret.reveal(), secret.reveal(), reads) == (VALUE, VALUE, ["read"])


def test_secrets_are_equal_by_value_and_never_equal_to_the_text() -> None:
    assert Secret(VALUE) == Secret(lambda: VALUE)
    assert hash(Secret(VALUE)) == hash(Secret(lambda: VALUE))
    assert Secret(VALUE) != VALUE
    assert Secret(VALUE) != Secret("another")
