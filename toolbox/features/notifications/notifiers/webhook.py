"""Posts a JSON document to any URL, with a signature by which the receiver recognizes the sender.

The headers and the signature are those of Standard Webhooks (https://www.standardwebhooks.com), for which there are
libraries in many languages. docs/notifications.md describes the document.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hashlib
import hmac
import json
import time
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from toolbox.features.notifications import posting
from toolbox.ground.model.errors import ConfigurationError
from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.notifications import Notification
from toolbox.ground.model.secret_fields import SecretField
from toolbox.ground.model.secrets import Secret
from toolbox.ground.model.text import truncate

VERSION: Final = 1
_LONGEST_TEXT: Final = 2000
_MAX_FAILURES: Final = 50
_KEY_PREFIX: Final = "whsec_"
_FEATURE: Final = "the notifier `webhook`"


class Notifier(BaseModel):
    """The URL that gets the document, and the key of the signature."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    url: SecretField = Field(description="the URL, which is a secret")
    signing_key: SecretField | None = Field(
        default=None, description="the key of the signature: `whsec_` and the key in base64, or any other text"
    )

    def verify(self) -> None:
        """Check that the library is installed, and that the secrets are a URL and a key."""
        posting.verify(self.url, _FEATURE)
        if self.signing_key is not None:
            _key(self.signing_key)

    def notify(self, notification: Notification) -> None:
        """Post the document."""
        body = json.dumps(document(notification)).encode()
        headers = {"webhook-id": notification.id, "webhook-timestamp": str(int(time.time()))}
        if self.signing_key is not None:
            headers["webhook-signature"] = signature(self.signing_key, headers, body)
        posting.post(self.url, body, headers)


def document(notification: Notification) -> dict[str, Any]:
    """Return the JSON document. Later versions of Topgallant may add fields to a version of the document."""
    series = dataclasses.asdict(notification.series)
    return {
        "version": VERSION,
        "type": f"topgallant.run.{notification.kind}",
        "timestamp": notification.started.isoformat() if notification.started else None,
        "data": {
            **{name: _text(value) if isinstance(value, str) else value for name, value in series.items()},
            "title": _text(notification.title),
            "run": notification.run,
            "earlier_run": notification.earlier_run or None,
            "verdict": notification.verdict,
            "cause": notification.cause,
            "message": _text(notification.message),
            "seconds": notification.seconds,
            "revision": _text(notification.revision) or None,
            "url": notification.url or None,
            "counts": dict(notification.counts),
            "failures": [
                {**dataclasses.asdict(step), "name": _text(step.name), "message": _text(step.message)}
                for step in notification.failures[:_MAX_FAILURES]
            ],
            "failure_count": len(notification.failures),
        },
    }


def signature(key: Secret, headers: dict[str, str], body: bytes) -> str:
    """Return the header `webhook-signature` for a body: version 1 is HMAC-SHA256 of the id, the time and the body."""
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    return f"v1,{base64.b64encode(hmac.digest(_key(key), signed, hashlib.sha256)).decode()}"


def _key(secret: Secret) -> bytes:
    text = secret.reveal().strip()
    if not text.startswith(_KEY_PREFIX):
        return text.encode()
    try:
        return base64.b64decode(text.removeprefix(_KEY_PREFIX), validate=True)
    except binascii.Error:
        raise ConfigurationError(f"{_FEATURE}: the signing key has no base64 after `{_KEY_PREFIX}`") from None


def _text(text: str) -> str:
    return truncate(clean(text), _LONGEST_TEXT)
