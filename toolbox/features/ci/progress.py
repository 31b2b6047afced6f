"""Publishes texts about a run while it is going on, in a thread of its own, so that a forge never delays the run.

One thread sends all texts, so an update never overtakes the text after it. Only the newest text is sent, and at most
one in `PAUSE` seconds. A text that cannot be sent is a warning.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from toolbox.ground.model.errors import describe

log = logging.getLogger(__name__)

PAUSE: Final = 30.0
"""The minimum time in seconds between two updates."""
_LONGEST_END: Final = 20.0  # seconds for the request that is going on when the run ends


class Progress:
    """Sends the newest text to a forge.

    Args:
        publish: sends a text; may block, and may raise any error.
    """

    def __init__(self, publish: Callable[[str], object], *, pause: float = PAUSE) -> None:
        self._publish = publish
        self._pause = pause
        self._changed = threading.Condition()
        self._text: str | None = None
        self._is_over = False
        self._has_failed = False
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        self._thread.start()

    def show(self, text: str) -> None:
        """Send a text soon, unless a newer text or the end comes first. The call does not block."""
        with self._changed:
            if not self._is_over:
                self._text = text
                self._changed.notify()

    def finish(self, final: str | None = None, *, timeout: float = _LONGEST_END) -> bool:
        """Send no further update, send the final text if there is one, and wait until this is done.

        Return whether the thread has ended: only then no update can be sent after this call.
        """
        with self._changed:
            self._text, self._is_over = final, True
            self._changed.notify()
        self._thread.join(timeout)
        if self._thread.is_alive():
            log.warning("the forge has not answered an update within %g s", timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_over or self._text is not None)
                text, is_over, self._text = self._text, self._is_over, None
            if text is not None:
                self._send(text)
            if is_over:
                return
            with self._changed:
                self._changed.wait_for(lambda: self._is_over, timeout=self._pause)

    def _send(self, text: str) -> None:
        try:
            self._publish(text)
        except Exception as error:  # noqa: BLE001  # a run continues whatever the forge answers
            level = logging.DEBUG if self._has_failed else logging.WARNING
            self._has_failed = True
            log.log(level, "the progress cannot be shown: %s", describe(error))
