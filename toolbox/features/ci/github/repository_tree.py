"""Asks GitHub which files the tested revision has."""

from __future__ import annotations

from toolbox.features.ci.github.github_api import Api, mapping, segment


def paths(api: Api, revision: str) -> frozenset[str]:
    """Return the paths of all files of a revision. GitHub leaves out files after the first 100,000.

    Raises:
        InfrastructureError: GitHub refused the request.
    """
    tree = mapping(api.get(f"git/trees/{segment(revision)}", recursive=1)).get("tree")
    entries = [mapping(entry) for entry in (tree if isinstance(tree, list) else ())]
    return frozenset(str(entry.get("path")) for entry in entries if entry.get("type") == "blob")
