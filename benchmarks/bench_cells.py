"""Measures the cost of a cell with the workload `true`, compared with a loop of `subprocess.run`, ReFrame and tmt.

ReFrame and tmt are omitted if they are not installed. Processor time includes all processes of a run. The loop runs
before and after each matrix, because its cost changes with the load of the machine. On ext4 without a journal, files
that any process has deleted in the last minutes make new files slower. Argument: the number of cells in the large
matrix (10000).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from costs import Cost, of_run

from toolbox.testing import Workspace

FLOOR_RATIO, RATIO, MEMORY_MB = 12, 1.2, 250
SMALL, LARGE, PEERS = 1_000, 10_000, 50

PROJECT = {
    "projects/cells/orchestration.py": '''
        """Cells that do nothing."""

        from toolbox.orchestration import matrix


        def test() -> None:
            matrix.run()
    ''',
    "config/cells.yaml": """
        matrix:
          axes: {hundreds: [0], ones: [0]}
          workload: {command: ["true"]}
    """,
}


def cost(cells: int, args: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None) -> Cost:
    """Run a program, and return its cost, which includes all processes that the program started."""
    began = time.perf_counter()
    process = subprocess.Popen(args, cwd=cwd, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{args} ended with {process.returncode}")
    return Cost(cells, time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def topgallant(cells: int, folder: Path) -> Cost:
    """Run a matrix in Topgallant, with journal, logs and JUnit."""
    workspace = Workspace(folder, PROJECT)
    axes = f"{{hundreds: {list(range(cells // 100))}, ones: {list(range(100))}}}"
    return of_run(workspace, cells, "--jobs=2", f"--overrides={{matrix.axes: {axes}}}")


def floor(cells: int, folder: Path) -> Cost:
    """Run `cells` processes in a plain loop."""
    loop = f"import subprocess\nfor _ in range({cells}): subprocess.run(['true'], check=True)"
    return cost(cells, [sys.executable, "-c", loop], cwd=folder)


def reframe(cells: int, folder: Path) -> Cost:
    """Run `cells` cells in ReFrame, as in the tutorial of ReFrame."""
    (folder / "cells.py").write_text(
        "import reframe as rfm\nimport reframe.utility.sanity as sn\n\n"
        "@rfm.simple_test\nclass Cell(rfm.RunOnlyRegressionTest):\n"
        f"    number = parameter(range({cells}))\n    valid_systems = ['*']\n    valid_prog_environs = ['*']\n"
        "    executable = 'true'\n\n    @sanity_function\n    def check(self):\n        return sn.assert_true(True)\n"
    )
    return cost(cells, ["reframe", "-c", "cells.py", "-r", "--exec-policy=async"], cwd=folder)


def tmt(cells: int, folder: Path) -> Cost:
    """Run `cells` cells in tmt, on this machine."""
    (folder / ".fmf").mkdir()
    (folder / ".fmf" / "version").write_text("1\n")
    tests = "".join(f"/cell{number}:\n    test: 'true'\n" for number in range(cells))
    (folder / "cells.fmf").write_text(f"/tests:\n    duration: 1m\n{_indented(tests)}")
    (folder / "plan.fmf").write_text("discover: {how: fmf}\nexecute: {how: tmt}\nprovision: {how: local}\n")
    args = ["tmt", "--feeling-safe", "run", "--all", "--remove", "--id", tempfile.mkdtemp(dir=folder.parent)]
    return cost(cells, args, cwd=folder)


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


def main() -> int:
    """Measure, print the results, and return 1 if a limit is exceeded."""
    large_cells = int(sys.argv[1]) if len(sys.argv) > 1 else LARGE
    with tempfile.TemporaryDirectory() as top:
        folders = iter(Path(tempfile.mkdtemp(dir=top)) for _ in range(9))
        before, small, between = (measure(SMALL, next(folders)) for measure in (floor, topgallant, floor))
        print(f"a loop of subprocess.run   {before}\na matrix                   {small}", flush=True)
        for name, peer in (("reframe", reframe), ("tmt", tmt)):
            is_installed = shutil.which(name) is not None
            print(f"{name:<26} {peer(PEERS, next(folders)) if is_installed else 'is not installed'}", flush=True)
        large = topgallant(large_cells, next(folders))
        after = floor(SMALL, next(folders))
        print(f"a large matrix             {large}\nthe loop again             {between}")
        print(f"and again                  {after}")
    to_floor = [
        2 * small.cpu_ms / (before.cpu_ms + between.cpu_ms),
        2 * large.cpu_ms / (between.cpu_ms + after.cpu_ms),
    ]
    ratio = large.cpu_ms / small.cpu_ms
    within = (max(to_floor) <= FLOOR_RATIO, ratio <= RATIO, large.memory <= MEMORY_MB)
    print(
        f"{to_floor[0]:.1f} and {to_floor[1]:.1f} times the CPU of the loop (at most {FLOOR_RATIO}: "
        f"{_word(within[0])}); "
        f"a cell of the large matrix costs {ratio:.2f} times as much (at most {RATIO}: {_word(within[1])}); "
        f"{large.memory:.0f} MB (at most {MEMORY_MB}: {_word(within[2])})"
    )
    return 0 if all(within) else 1


def _word(within: bool) -> str:
    return "yes" if within else "NO"


if __name__ == "__main__":
    sys.exit(main())
