"""Fields of notifiers that must be secrets, so that no artifact, log or error can contain their values."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator

from toolbox.ground.model.secrets import Secret


def _is_secret(value: object) -> object:
    """Refuse a value that is written in the configuration itself, and would be copied into `config.yaml`."""
    if isinstance(value, Secret):
        return value
    raise ValueError('must be a secret: put it into a file of `secrets.dir`, and write "*$@secrets.NAME"')


SecretField = Annotated[Secret, BeforeValidator(_is_secret)]
