"""Run what runs in a process with the oldest, two middle and the newest SDK that is supported.

    python tests/sdk_range [VERSION ...]

Each SDK has an environment of its own in .venv-sdk/, which is made once and again when this file changes. The last one has
`opentelemetry-instrument` too, so that the tests of zero-code run there, and that of all six ways.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOME = ROOT / ".venv-sdk"
LOADER = "0.66b1"  # the newest pair; it belongs to SDK 1.45.1
SDKS: dict[str, tuple[str, ...]] = {
    "1.30.0": (),
    "1.39.1": (),
    "1.44.0": (),
    "1.45.1": (f"opentelemetry-instrumentation=={LOADER}", f"opentelemetry-distro=={LOADER}"),
}
OTHERS = (
    *("grpcio>=1.60,<2", "protobuf>=5,<8", "pydantic>=2.7,<3", "PyYAML>=6,<7", "click>=8.1,<9"),
    *("pytest>=8.3,<10", "pytest-timeout>=2.3,<3", "hypothesis>=6.100,<7", "setuptools>=68"),
)
TESTS = ("inprocess", "exporter", "zero_code")


def environment(version: str) -> Path:
    """The interpreter that has this SDK."""
    folder = HOME / version
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    stamp = folder / "made-by"
    recipe = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    if python.exists() and stamp.exists() and stamp.read_text() == recipe:
        return python
    venv.create(folder, with_pip=True, clear=True)
    pinned = [f"opentelemetry-{name}=={version}" for name in ("sdk", "exporter-otlp")]
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *pinned, *SDKS[version], *OTHERS], check=True)
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "-e", str(ROOT)], check=True)
    stamp.write_text(recipe)
    return python


def passes(version: str) -> bool:
    """Whether the tests pass with this SDK."""
    print(f"== SDK {version}", flush=True)
    tests = [f"tests/flow/{name}" for name in TESTS] + ["tests/unit/sinks"]
    if SDKS[version]:
        tests.append("tests/flow/test_six_ways.py")
    command = [str(environment(version)), "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False).returncode == 0


def main(versions: list[str]) -> int:
    """0 if every SDK passes."""
    unknown = set(versions) - SDKS.keys()
    if unknown:
        print(f"no such SDK here: {', '.join(sorted(unknown))}; there are {', '.join(SDKS)}", file=sys.stderr)
        return 2
    failed = [version for version in versions or SDKS if not passes(version)]
    print(f"failed with SDK {', '.join(failed)}" if failed else "passed with every SDK")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
