"""Objects are written to files without the values of Secrets."""

from __future__ import annotations

from pathlib import Path

from toolbox.features.kubernetes.library import _evidence

SECRET = {
    "kind": "Secret",
    "type": "Opaque",
    "metadata": {"name": "door", "annotations": {"anybody/copy": "c2VzYW1l"}, "managedFields": [{}]},
    "data": {"word": "c2VzYW1l"},
    "stringData": {"word": "sesame"},
}


def test_a_secret_keeps_only_its_name_type_and_keys() -> None:
    assert _evidence.without_secrets(SECRET) == {
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {"name": "door", "annotations": {"anybody/copy": "***"}},
        "data": {"word": "***"},
        "stringData": {"word": "***"},
    }


def test_an_empty_secret_is_not_an_error() -> None:
    empty = {"kind": "Secret", "metadata": {"annotations": None}, "data": None}
    assert _evidence.without_secrets(empty) == {"kind": "Secret", "metadata": {"annotations": {}}, "data": {}}


def test_the_values_of_a_secret_without_valid_metadata_are_masked() -> None:
    masked = {"kind": "Secret", "metadata": {}, "data": {"word": "***"}}
    assert _evidence.without_secrets({"kind": "Secret", "metadata": "x", "data": {"word": "c2VzYW1l"}}) == masked


def test_another_object_is_kept_without_managed_fields() -> None:
    found = {"kind": "Pod", "metadata": {"name": "one", "managedFields": [{}]}, "status": {"phase": "Running"}}
    assert _evidence.without_secrets(found) == {**found, "metadata": {"name": "one"}}


def test_objects_are_written_as_documents(tmp_path: Path) -> None:
    _evidence.write(tmp_path / "all.yaml", [{"kind": "A", "metadata": {}}, {"kind": "B", "metadata": {}}])
    assert (tmp_path / "all.yaml").read_text() == "kind: A\nmetadata: {}\n---\nkind: B\nmetadata: {}\n"
