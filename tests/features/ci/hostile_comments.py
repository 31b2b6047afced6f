"""More than two hundred comments that attackers might write on a pull request.

Some are written by hand; the others put a hostile text into each position of the grammar. `{pwned}` stands for a file
that must never be created.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests import hostile_texts

_HEAD: Final = "/test hostile\n"
_BILLION: Final = "a: &a [x, x]\n  " + "\n  ".join(f"{b}: &{b} [*{a}, *{a}]" for a, b in itertools.pairwise("abcdefgh"))
_MEGABYTE: Final = 1 << 20
_SHELL: Final = (
    "/test hostile; touch {pwned}",
    "/test hostile && touch {pwned}",
    "/test $(touch {pwned})",
    "/test `touch {pwned}`",
    "/test hostile '$(touch {pwned})'",
    "/test hostile\\\n; touch {pwned}",
    "/test 'hostile",
    '/test "hostile',
    "/test hostile \\",
    "/test hostile | tee {pwned}",
    "/test hostile > {pwned}",
    "/test -h hostile",
    "/test --help",
    "/test hostile --overrides={pwned}",
    "/test hostile --presets=loud",
    "/$(touch {pwned})",
    "/;touch {pwned}",
    "/../../bin/sh -c 'touch {pwned}'",
    "/bin/sh -c 'touch {pwned}'",
    "/etc/passwd",
)
_NAMES: Final = (
    "/test ..",
    "/test ../hostile",
    "/test ./hostile",
    "/test hostile/../hostile",
    "/test /etc",
    "/test hostile/",
    "/test .",
    "/test ''",
    "/test hostile ''",
    "/test hostile ../loud",
    "/test hostile to_apply",
    "/test hostile names",
    "/test .. hostile",
    "/test '' hostile",
    "/test h\u043estile",
    "/t\u0435st hostile",
    "/\uff54est hostile",
    "\uff0ftest hostile",
    "/test \uff48ostile",
    "/test hosti\u0131e",
    "/test hostile\u200b",
    "/test ho\u00adstile",
    "/test hostile\u202eduol",
    "/test hostile l\u043eud",
    "/test\u00a0hostile loud",
    "/test hostile\u2028/test hostile",
    "/test HOSTILE",
    "/test hostile\x1b[2J",
    "/test \x1b]0;title\x07hostile",
    "/te\x00st hostile",
    "/test hos\x00tile",
    "/test \ud800hostile",
    "/\udfff hostile",
    "/test hostile \x9b31m",
    "/test ::set-output name=x::y",
    "/::set-output name=x::y",
    "/test hostile ##[group]x",
    "/##vso[task.setvariable variable=x]y",
    "/test ${{ secrets.GITHUB_TOKEN }}",
    "/test hostile ${{ github.token }}",
    "/test {{ config }}",
    "/test " + "A" * 60_000,
    "/" + "A" * 60_000,
    "/test hostile " + "x " * 30_000,
)
_FIELDS: Final = (
    "/var $: {}",
    "/var '': 1",
    "/var ..: 1",
    "/var a..b: 1",
    "/var text.__class__: 1",
    "/var matrix: null",
    "/var matrix.workload.command: [touch, '{pwned}']",
    "/var matrix: {axes: {}, workload: {command: [touch, '{pwned}']}}",
    "/var matrix.workload: {command: touch {pwned}}",
    "/var matrix.quarantine: []",
    "/var ci.overridable: ['**']",
    "/var ci: {overridable: ['**']}",
    "/var ci.jobs: {x: {target: local}}",
    "/var ci.clusters: {x: {presets: [loud]}}",
    "/var ci_presets.loud.tag: x",
    "/var targets: {}",
    "/var secrets: {dir: {env_key: HOME}}",
    "/var results.database: {pwned}",
    "/var tag: x",
    '/var "ta\\u0067": x',
    "/var text: ok\n/var tag: x",
    "/var\n  text: ok\n  tag: x",
    "/var {text: ok, tag: x}",
    "/var <<: {tag: x}",
    "/var text: ok\u2028tag: x",
    "/var text: ok\x85tag: x",
    "/var text[0]: x",
    "/var text: '@secrets.token'",
    "/var text: '*$@secrets.token'",
    "/var text: 'a {@tag} b'",
    "/var " + "a." * 30_000 + "a: 1",
    "/var " + "text[0]" * 9_000 + ": 1",
)
_VALUES: Final = (
    "/var text: !!python/object/apply:os.system ['touch {pwned}']",
    "/var text: !!python/object/new:subprocess.Popen [[touch, '{pwned}']]",
    "/var text: !!python/name:os.system",
    "/var !!python/name:os.system : x",
    "/var text: !!binary aGk=",
    "/var text: !!bool x",
    "/var text: !!timestamp x",
    "/var text: !!int ''",
    "/var text: !vault |\n  $ANSIBLE_VAULT;1.1;AES256",
    "/var %TAG ! tag:yaml.org,2002:\n--- !python/name:os.system\n...",
    f"/var\n  {_BILLION}",
    "/var text: &a [*a]",
    "/var text: *a",
    f"/var text: {'[' * 500}{']' * 500}",
    f"/var text: {'[' * 30_000}",
    f"/var text: {'{a: ' * 300}1{'}' * 300}",
    f"/var text: {'- ' * 20_000}x",
    f"/var text: {'9' * 60_000}",
    f"/var text: 0x{'f' * 60_000}",
    f"/var text: {'1:' * 20_000}1",
    "/var text: 99999999999999999999",
    "/var ? [text]\n  : x",
    "/var ? {a: b}\n  : x",
    "/var text: 2026-99-99",
    "/var text: [" + "1," * 5_000 + "]",
    "/var text: " + "x" * 20_000,
    "/var text: |\n" + "  x\n" * 15_000,
    '/var text: "\\0"',
    '/var text: "\\ud800"',
    "/var text: a\x00b",
    "/var text: a\ud800b",
    "/var text: a\x1b[2Jb",
    "/var text: 'unclosed",
    '/var text: "unclosed',
    "/var text: {a: b",
    "/var text: a: b",
    "/var text\ttouch: x",
    "/var --- {text: a}\n--- {text: b}",
    "/var text: {{ lookup('pipe', 'touch {pwned}') }}",
    "/var text: ${{ secrets.GITHUB_TOKEN }}",
    "/var text: \"{{ lookup('pipe', 'touch {pwned}') }}\"",
    "/var text: '${{ secrets.GITHUB_TOKEN }}'",
    "/var text: '::set-output name=x::y'",
    '/var text: "\\n::set-output name=x::y\\n##[group]x"',
    '/var text: "\\e[2J\\e]0;t\\a"',
    '/var text: "\\u202Egnp.exe\\u200B"',
    "/var text: $(touch {pwned})",
    "/var text: |\n  $(touch {pwned})\n  `touch {pwned}`",
    "/var text: ''",
    "/var text: ~",
)
_OTHERS: Final = (
    "/skip ..",
    "/skip 'prepare;touch {pwned}'",
    "/only test\n/skip prepare",
    "/only __import__",
    "/cells ../*",
    "/cells '*\x1b[2J'",
    "/cells [" + "a" * 60_000,
    "/cells " + "*a" * 100,
    "/cells $(touch {pwned})",
    "/cluster ../metal",
    "/cluster $(touch {pwned})",
    "/cluster local",
    "/quarantine * $(touch {pwned})",
    "/quarantine * @secrets.token",
    "/quarantine * a\u202eb",
    "/quarantine * " + "x" * 60_000,
    "/quarantine",
    "/retest ../hostile",
    "/retest /etc",
    "/retest hostile",
    "/cancel",
    "/help; touch {pwned}",
    "/test hostile\n/test hostile\n/test nowhere",
    "/test hostile\n" * 4_000,
    "/skip x\n" * 8_000,
    "/x\n" * 20_000,
)
_WHOLE: Final = (
    "x" * _MEGABYTE,
    "/test hostile\n" * (_MEGABYTE // 14),
    "/var text: " + "x" * _MEGABYTE,
    "\n" * _MEGABYTE,
    "\x00" * 60_000,
    "\ud800" * 60_000,
    "```\n" * 15_000,
    "> /test hostile\r\n" * 1_000,
    "/test hostile\r/test nowhere\r",
    "/test hostile\r\n/var tag: x\r\n",
    "```\n/test hostile\n/var tag: x\n```",
    "~~~\n```\n/var tag: x\n~~~\n/var tag: x",
    "    /var tag: x\n\t/var tag: x\n> /var tag: x\n/var tag: x",
    "<!-- /test hostile -->\n<!--\n/test hostile\n/var tag: x\n-->",
    "/var tag: x\n/test hostile",
    "/cluster x\n/skip y\n/cells z\n/quarantine a b\n/test hostile",
)


def comments(folder: Path) -> list[str]:
    """Return the comments.

    Args:
        folder: directory in which a comment creates a file whose name begins with `pwned`, if a part of it is executed.
    """
    every = (*_SHELL, *_NAMES, *(_HEAD + text for text in (*_FIELDS, *_VALUES, *_OTHERS)), *_WHOLE)
    written = [text.replace("{pwned}", str(folder / f"pwned-comment-{number}")) for number, text in enumerate(every)]
    return list(dict.fromkeys([*written, *_generated(hostile_texts.texts(folder))]))


def _generated(texts: list[str]) -> Iterator[str]:
    """Yield one comment for each text, which is at another position of the grammar each time."""
    positions = (
        "/test {}",
        "/{}",
        "{}",
        "/test hostile {}",
        "/test {} hostile",
        "/test hostile\n/skip {}",
        "/test hostile\n/var text: {}",
        "/test hostile\n/var text:\n  {}",
        "/test hostile\n/var {}: x",
        "/test hostile\n/cells {}",
        "/test hostile\n/cluster {}",
        "/test hostile\n/quarantine {} {}",
        "/retest {}",
    )
    for text, position in zip(texts, itertools.cycle(positions)):
        yield position.replace("{}", text)
    for text in texts[::4]:
        yield f"/test hostile\n/var text: {json.dumps(text)}"
