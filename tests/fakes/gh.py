"""Stands in for GitHub's command line `gh`: answers `gh api` for one repository from a file of JSON.

The file, which `$FAKE_GH_STATE` names, has the issues, labels, pull requests, permissions and activities of the
repository. The requests are added to its list `requests`, and the statuses of commits to its list `statuses`.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

STATE = Path(os.environ["FAKE_GH_STATE"])


class Refused(Exception):
    """The answer is an error, such as `Not Found (HTTP 404)`."""


def main(args: list[str]) -> int:
    """Answer one call."""
    assert os.environ["GH_TOKEN"] == "token-of-the-job"
    state = json.loads(STATE.read_text()) if STATE.exists() else {}
    try:
        answer = answered(state, args)
    except Refused as error:
        sys.stderr.write(f"gh: {error}\n")
        return 1
    finally:
        STATE.write_text(json.dumps(state))
    if "--silent" not in args:
        sys.stdout.write(json.dumps(answer))
    return 0


def answered(state: dict[str, Any], args: list[str]) -> Any:
    """Return the answer to the arguments of a call."""
    assert args[0] == "api"
    words, fields, method, body = [], {}, None, None
    rest = args[1:]
    while rest:
        word = rest.pop(0)
        if word == "--method":
            method = rest.pop(0)
        elif word == "-f":
            name, _, value = rest.pop(0).partition("=")
            fields[name] = value
        elif word == "--input":
            assert rest.pop(0) == "-"
            body = json.load(sys.stdin)
        elif word != "--silent":
            words.append(word)
    (address,) = words
    parts = urlsplit(address)
    path = parts.path.removeprefix("repos/owner/name/")
    assert path != parts.path, f"another repository: {address}"
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    method = method or ("POST" if fields else "GET")
    state.setdefault("requests", []).append([method, path])
    return respond(state, method, path, body if body is not None else fields, query)


def respond(state: dict[str, Any], method: str, path: str, body: dict[str, Any], query: dict[str, str]) -> Any:
    """Answer a request as GitHub does."""
    match method, path.split("/"):
        case _, ["issues", *rest]:
            return respond_issues(state, method, rest, body, query)
        case "GET", ["labels", name]:
            return {"name": name} if name in state.get("labels", []) else refuse("Not Found (HTTP 404)")
        case "GET", ["pulls", number]:
            return state["pulls"].get(number) or refuse("Not Found (HTTP 404)")
        case "GET", ["collaborators", user, "permission"]:
            return {"permission": state["permissions"].get(unquote(user), "none")}
        case "GET", ["activity"]:
            return [each for each in state["activity"] if each["ref"] == query["ref"]][: int(query["per_page"])]
        case "POST", ["labels"]:
            state.setdefault("labels", []).append(body["name"])
        case "POST", ["statuses", revision]:
            assert re.fullmatch("[0-9a-f]{40}", revision)
            state.setdefault("statuses", []).append({"revision": revision, **body})
        case _:
            raise AssertionError(f"unexpected request: {method} {path}")
    return body


def respond_issues(
    state: dict[str, Any], method: str, rest: list[str], body: dict[str, Any], query: dict[str, str]
) -> Any:
    """Answer a request about issues. As on GitHub, labels that do not exist are not set."""
    issues = state.setdefault("issues", [])
    match method, rest:
        case "GET", []:
            wanted = (query["state"], query["creator"])
            matching = [issue for issue in issues if (issue["state"], issue["user"]["login"]) == wanted]
            return [issue for issue in matching if query["labels"] in [label["name"] for label in issue["labels"]]]
        case "POST", []:
            labels = [{"name": name} for name in body.pop("labels") if name in state.get("labels", [])]
            facts = {"number": len(issues) + 1, "state": "open", "user": {"login": "github-actions[bot]"}}
            issues.append({**facts, "labels": labels, "comments": [], **body})
            return issues[-1]
        case "PATCH", [number]:
            issues[int(number) - 1].update(body)
            return issues[int(number) - 1]
        case "POST", [number, "comments"]:
            issues[int(number) - 1]["comments"].append(body["body"])
            return body
    raise AssertionError(f"unexpected request: {method} issues/{'/'.join(rest)}")


def refuse(message: str) -> Any:
    """Answer with an error."""
    raise Refused(message)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
