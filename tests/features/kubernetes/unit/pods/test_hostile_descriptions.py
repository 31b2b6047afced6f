"""Two hundred hostile texts in the descriptions of pods: none becomes a label, a queue or a name."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from tests.hostile_texts import texts
from toolbox.features.kubernetes.pods import description, manifests


def test_hostile_texts_in_descriptions_of_pods_are_refused(tmp_path: Path) -> None:
    plain = re.compile(r"[-A-Za-z0-9_./]*")
    for text in texts(tmp_path):
        for fields in ({"labels": {"a": text}}, {"labels": {text: "a"}}, {"service_account": text}, {"queue": text}):
            with suppress(ValueError):
                pod = description.parse({"image": "i"}, fields)
                shown = [*pod.labels, *pod.labels.values(), pod.service_account or "", pod.queue or ""]
                assert [each for each in shown if not plain.fullmatch(each)] == []
        assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", manifests.job_name(text, text))
