"""Benchmarks take no part in tests, but for this: what they import is there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_benchmark_can_be_loaded():
    """A module that was moved is named anew in the benchmarks, too."""
    benchmarks = sorted(str(path) for path in (ROOT / "bench").glob("*.py"))
    script = "import runpy, sys\nfor path in sys.argv[1:]: runpy.run_path(path)"
    path = os.pathsep.join(str(ROOT / folder) for folder in ("bench", "tests", ""))

    loaded = subprocess.run(
        [sys.executable, "-c", script, *benchmarks],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )

    assert len(benchmarks) > 5
    assert loaded.returncode == 0, loaded.stderr
