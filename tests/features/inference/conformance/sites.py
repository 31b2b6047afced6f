"""What the conformance suites of the core test of this feature: the client that is sent to targets."""

from __future__ import annotations

from typing import Final

from tests.conformance.sent_packages import SentPackage
from toolbox.features.inference import client as inference_client

SENT_PACKAGES: Final = {
    "inference_client": SentPackage(
        inference_client, (3, 10), frozenset({"google", "grpc", "h11", "httpx"}), is_program=True
    )
}
