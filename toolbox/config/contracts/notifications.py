"""The contract of the block `notifications`: who is told when runs begin to fail, and when they pass again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, RootModel, model_validator
from pydantic_core import PydanticCustomError

from toolbox.config.contract import HIDDEN_INPUT
from toolbox.ground.extensions import loading
from toolbox.ground.extensions.protocols import NOTIFIERS
from toolbox.ground.model.nearest import misspelled
from toolbox.ground.model.notifications import NotificationKind

_WHEN: Final = "when"


class Entry(BaseModel):
    """One receiver of messages: the name of a notifier with the fields of this notifier, and `when`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    notifier: Any = Field(description="the name of the notifier; the object that it describes")
    when: Annotated[list[NotificationKind], Field(min_length=1)] = Field(
        default=list(NotificationKind), description="which messages the receiver gets"
    )

    @model_validator(mode="before")
    @classmethod
    def _parse(cls, entry: Any) -> Any:
        """Replace the name and the fields of the notifier by the object that they describe."""
        if not isinstance(entry, Mapping):
            return entry
        spec = {name: value for name, value in entry.items() if name != _WHEN}
        try:
            notifier = loading.parse(NOTIFIERS, spec)
        except ValueError as error:  # the text of a value may be a secret that a person wrote here by mistake
            raise PydanticCustomError(HIDDEN_INPUT, "{reason}", {"reason": str(error)}) from None
        return {"notifier": notifier, **({_WHEN: entry[_WHEN]} if _WHEN in entry else {})}


def _entry_or_none(entry: Any) -> Any:
    """Return an entry that names a notifier; None for an entry of the project with another meaning."""
    if not isinstance(entry, Mapping):
        return None
    fields = [NOTIFIERS.key]
    return entry if any(key in fields or misspelled(str(key), fields) for key in entry) else None


class Contract(RootModel[dict[str, Annotated[Entry | None, BeforeValidator(_entry_or_none)]]]):
    """The block `notifications`: the receivers by name. An entry of the project, or one that is null, becomes None."""

    @property
    def entries(self) -> dict[str, Entry]:
        """The receivers by name."""
        return {name: entry for name, entry in self.root.items() if entry is not None}
