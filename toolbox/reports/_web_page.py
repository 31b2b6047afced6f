"""Renders web pages. Each page is one file, which needs no other file.

All values in a template are escaped, and control characters are removed. The content security policy of a page allows
only the scripts and styles of Topgallant, by their digests, and does not let the page load anything.
"""

from __future__ import annotations

import base64
import hashlib
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import jinja2
from jinja2.bccache import Bucket
from markupsafe import Markup
from rich import filesize

from toolbox.ground.model.foreign_text import clean
from toolbox.ground.model.text import duration, truncate
from toolbox.ground.model.verdicts import Verdict
from toolbox.records.runs.run_state import State

_HERE: Final = Path(__file__).parent
_REVISION_DIGITS: Final = 12
# Numbers in this range are written without an exponent. The first has six digits when it is rounded.
_WITHOUT_EXPONENT: Final = (99_999.5, 1e15)


@dataclass(frozen=True, slots=True)
class Mark:
    """How pages show a verdict or a missing verdict: by a symbol and a word, so that the colour is not needed.

    Args:
        key: the name of the class in the style sheet, without the prefix `v-`.
    """

    key: str
    symbol: str
    word: str
    is_bad: bool = False


_MARKS: Final[dict[str, Mark]] = {
    Verdict.PASSED: Mark("passed", "\u2713", "passed"),
    Verdict.FAILED: Mark("failed", "\u2717", "failed", is_bad=True),
    Verdict.ERROR: Mark("error", "!", "error", is_bad=True),
    Verdict.SKIPPED: Mark("skipped", "\u2013", "skipped"),
    Verdict.XFAILED: Mark("xfailed", "\u2248", "failed as expected"),
    Verdict.XPASSED: Mark("xpassed", "\u2260", "passed unexpectedly", is_bad=True),
    Verdict.CANCELLED: Mark("cancelled", "\u2298", "cancelled", is_bad=True),
}
_QUARANTINED: Final = {
    verdict: Mark(f"{bad.key}-quarantined", "\u22a0", f"{bad.word}, in quarantine")
    for verdict, bad in _MARKS.items()
    if bad.is_bad
}
_REUSED: Final = Mark("reused", "\u21ba", "passed in an earlier run")
_GOING_ON: Final = Mark("running", "\u2026", "going on")
_NOT_ENDED: Final = Mark("lost", "?", "not ended", is_bad=True)
WAITING: Final = Mark("waiting", "\u00b7", "not started")
# Colours for the icon of the browser's tab, to which the style sheet does not apply.
_ICON_COLOURS: Final = {"passed": "#1d7a48", "running": "#1b63b5", "failed": "#c02222", "error": "#8b2a93"}


def mark(verdict: str | None, state: str, *, is_quarantined: bool = False, is_reused: bool = False) -> Mark:
    """Return the mark of a verdict.

    Args:
        verdict: a `Verdict`; None for a step or run that has no verdict yet.
        state: the `State` of the run, which decides the mark of a missing verdict.
        is_reused: whether the verdict is that of an earlier run.
    """
    if is_reused:
        return _REUSED
    if verdict is not None:
        return (_QUARANTINED if is_quarantined else _MARKS).get(verdict, _MARKS[verdict])
    return _GOING_ON if state == State.RUNNING else _NOT_ENDED


def render(
    template: Path, *, styles: Sequence[str], scripts: Sequence[str], icon: Mark, more_style: str = "", **context: Any
) -> str:
    """Return a page.

    Args:
        template: the path of the template, which extends `base.html`.
        styles: the names of files in `assets/` beside the folder of the template. They follow `base.css`.
        scripts: the names of files in the same `assets/`. If there are none, the page forbids all scripts.
        more_style: further CSS rules, which follow the files.
        context: the variables of the template. The scripts read the variable `data` from the element `#data`.
    """
    assets = template.parents[1] / "assets"
    style = _assets(_HERE / "base.css", *(assets / name for name in styles)) + Markup(more_style)  # noqa: S704
    script = _assets(*(assets / name for name in scripts))
    page = _environment(template.parent).get_template(template.name)
    policy = _policy(style, script)
    return page.render(style=style, script=script, policy=policy, icon=_icon(icon), **context)


def fragment(template: Path, **context: Any) -> Markup:
    """Return a part of a page, from a template that may import the macros of `report.html`."""
    return Markup(_environment(template.parent).get_template(template.name).render(context))  # noqa: S704


def revision(name: str | None) -> str:
    """Return the first characters of a revision, and the `+` that marks uncommitted changes."""
    if not name:
        return "unknown"
    return name[:_REVISION_DIGITS] + ("+" if name.endswith("+") and len(name) > _REVISION_DIGITS else "")


def digits(number: float) -> str:
    """Return a number with five significant digits, or with all digits before the point."""
    least, most = _WITHOUT_EXPONENT
    return f"{number:,.0f}" if least <= abs(number) < most else f"{number:,.5g}"


def _moment(when: datetime | None) -> Markup:
    """Return a time in UTC as an HTML element."""
    if when is None:
        return Markup()
    utc = when.astimezone(UTC)
    return Markup('<time datetime="{}">{} UTC</time>').format(f"{utc:%Y-%m-%dT%H:%M:%SZ}", f"{utc:%Y-%m-%d %H:%M:%S}")


def _cleaned(value: Any) -> Any:
    """Return a value of a template without control characters, and without characters that reverse text."""
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


class _BytecodeCache(jinja2.FileSystemBytecodeCache):
    """Keeps compiled templates where Python keeps the compiled modules of this folder, if it may write there.

    The names of the files depend on this module, which determines how templates are compiled, and on Jinja.
    """

    def __init__(self) -> None:
        compiler = hashlib.sha256(Path(__file__).read_bytes() + jinja2.__version__.encode()).hexdigest()
        super().__init__(str(_HERE / "__pycache__"), f"template-{compiler[:16]}-%s.cache")

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Write a compiled template."""
        with suppress(OSError):
            if not sys.dont_write_bytecode:
                super().dump_bytecode(bucket)


@cache
def _environment(templates: Path) -> jinja2.Environment:
    environment = jinja2.Environment(
        bytecode_cache=_BytecodeCache(),
        autoescape=True,
        loader=jinja2.FileSystemLoader([templates, _HERE / "page/templates", _HERE]),
        undefined=jinja2.StrictUndefined,
        finalize=_cleaned,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        digits=digits, duration=duration, moment=_moment, revision=revision, size=filesize.decimal, truncate=truncate
    )
    environment.globals["mark_of"] = mark
    return environment


@cache
def _assets(*files: Path) -> Markup:
    return Markup("\n").join(Markup(file.read_text(encoding="utf-8")) for file in files)  # noqa: S704


def _policy(style: str, script: str) -> str:
    scripts = _digest(script) if script else "'none'"
    return (
        f"default-src 'none'; style-src {_digest(style)}; script-src {scripts}; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _icon(mark: Mark) -> str:
    colour = _ICON_COLOURS.get(mark.key, "#6b5a2a")
    text = f'<text x="16" y="23" font-size="20" fill="#fff" text-anchor="middle">{mark.symbol}</text>'
    disc = f'<circle cx="16" cy="16" r="15" fill="{colour}"/>'
    image = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">{disc}{text}</svg>'
    return f"data:image/svg+xml,{quote(image)}"
