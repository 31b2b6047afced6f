"""Posts to a channel of Slack, by an incoming webhook. Mattermost accepts the fallback text of the same message.

The limits are those of https://docs.slack.dev/reference/block-kit/blocks, and the escapes those of
https://docs.slack.dev/messaging/formatting-message-text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from toolbox.features.notifications import posting
from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.notifications import Notification, NotificationKind
from toolbox.ground.model.secret_fields import SecretField
from toolbox.ground.model.text import duration

_LONGEST_SECTION: Final = 3000
_LONGEST_FALLBACK: Final = 3000  # Slack truncates a longer text only after 40,000 characters; a person reads less
_LONGEST_NAME: Final = 200
_LONGEST_MESSAGE: Final = 300
_MAX_FAILURES: Final = 10  # a message may have 50 blocks
_ESCAPES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_EMOJI: Final = {NotificationKind.FAILURE: ":red_circle:", NotificationKind.RECOVERY: ":large_green_circle:"}


class Notifier(BaseModel):
    """The incoming webhook of a channel."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    url: SecretField = Field(description="the URL of the incoming webhook, which is a secret")

    def verify(self) -> None:
        """Check that the library is installed, and that the secret is a URL."""
        posting.verify(self.url, "the notifier `slack`")

    def notify(self, notification: Notification) -> None:
        """Post a message with the verdict, the cause and the first failures."""
        posting.post(self.url, json.dumps(message(notification)).encode(), {})


def message(notification: Notification) -> dict[str, Any]:
    """Return the message in the format of Block Kit. The field `text` is what notifications of the system show."""
    title = f"{_EMOJI[notification.kind]} *{escaped(notification.title, _LONGEST_NAME)}*"
    sections = ["\n".join([title, *_facts(notification)])]
    sections += [_failure(name, text) for name, text in _failures(notification)]
    if (more := len(notification.failures) - _MAX_FAILURES) > 0:
        sections.append(f"and {more} more")
    blocks = [
        {"type": "section", "text": {"type": "mrkdwn", "text": section[:_LONGEST_SECTION], "verbatim": True}}
        for section in sections
    ]
    return {"text": escaped(notification.title, _LONGEST_FALLBACK), "blocks": blocks}


def escaped(text: str, longest: int) -> str:
    """Return a text with the characters that Slack interprets escaped, in at most `longest` characters.

    `<` would begin a link or a mention such as `<!channel>`. No escape is cut in the middle.
    """
    pieces: list[str] = []
    length = 0
    for character in " ".join(clean(text).split()):
        piece = _ESCAPES.get(character, character)
        if length + len(piece) > longest - 1:
            pieces.append("…")
            break
        pieces.append(piece)
        length += len(piece)
    return "".join(pieces)


def _facts(notification: Notification) -> Iterator[str]:
    cause = f" ({notification.cause})" if notification.cause else ""
    yield f"{notification.verdict}{cause} in {duration(notification.seconds)}"
    counts = ", ".join(f"{count} {verdict}" for verdict, count in notification.counts.items())
    if counts:
        yield f"cells: {escaped(counts, _LONGEST_NAME)}"
    if notification.message and not notification.failures:
        yield escaped(notification.message, _LONGEST_MESSAGE)
    if notification.earlier_run:
        yield f"it failed since the run {escaped(notification.earlier_run, _LONGEST_NAME)}"
    revision = f" of {escaped(notification.revision, _LONGEST_NAME)}" if notification.revision else ""
    yield f"run {_link(notification)}{revision}"


def _link(notification: Notification) -> str:
    run = escaped(notification.run, _LONGEST_NAME)
    url = escaped(notification.url, 2 * _LONGEST_MESSAGE)
    is_whole = len(notification.url) < _LONGEST_MESSAGE and not set("|\n ") & set(notification.url)
    return f"<{url}|{run}>" if url and is_whole else run


def _failures(notification: Notification) -> Iterator[tuple[str, str]]:
    for step in notification.failures[:_MAX_FAILURES]:
        cause = f" ({step.cause})" if step.cause else ""
        yield f"{step.verdict}{cause}: {step.name}", step.message


def _failure(name: str, text: str) -> str:
    # A backtick would end the code, so that the rest of the text is formatted.
    code = escaped(text.replace("`", "'"), _LONGEST_MESSAGE)
    return f"• {escaped(name, _LONGEST_NAME)}" + (f"\n`{code}`" if code else "")
