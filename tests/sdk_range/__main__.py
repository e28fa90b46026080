"""Run what runs in a process with the oldest, two middle and the newest SDK that is supported.

With Python 3.11 the oldest one comes with the oldest version of every dependency that
pyproject.toml allows, and more tests.

    python -m tests.sdk_range [VERSION ...]

Each SDK has an environment of its own in .venv-sdk/, which is made once and again when this file
changes. The last one has `opentelemetry-instrument` too, so that the tests of zero-code run there,
and that of all six ways.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tomllib
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
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OLDEST = "1.30.0"
OTHERS = (
    "pytest>=9,<10",
    "pytest-timeout>=2.3,<3",
    "hypothesis>=6.100,<7",
    "jsonschema>=4.18,<5",
    "setuptools>=77.0.3,<100",
    "trustme>=1.2,<2",
)
FLOOR_OTHERS = ("jsonschema>=4.18,<5",)
TESTS = (
    "flow/inprocess",
    "flow/zero_code",
    "flow/exporters/test_neutral_traces.py",
    "unit/exporters",
)
FLOOR_TESTS = (
    "unit/config",
    "unit/cli",
    "conformance",
    "flow/receiver/test_grpc.py",
    "flow/receiver/test_http.py",
)


def dependencies() -> list[str]:
    """What the package and its extras for users need, without the SDK."""
    extras = [
        each
        for name, listed in PROJECT["optional-dependencies"].items()
        if name != "dev"
        for each in listed
    ]
    return [
        each for each in PROJECT["dependencies"] + extras if not each.startswith("opentelemetry-")
    ]


def floor(dependency: str) -> str:
    """The oldest version that a dependency may have.

    >>> floor("backports.zstd>=1.0,<2; python_version < '3.14'")
    "backports.zstd==1.0; python_version < '3.14'"
    """
    return re.sub(r">=([^,;]+)[^;]*", r"==\1", dependency)


def has_floors(version: str) -> bool:
    """Whether the dependencies beside this SDK are the oldest: these have wheels for Python 3.11,
    and not for every later one.
    """
    return version == OLDEST and sys.version_info[:2] == (3, 11)


def environment(version: str) -> Path:
    """The interpreter that has this SDK."""
    folder = HOME / version
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    stamp = folder / "made-by"
    recipe = hashlib.sha256(Path(__file__).read_bytes() + repr(dependencies()).encode()).hexdigest()
    if python.exists() and stamp.exists() and stamp.read_text() == recipe:
        return python
    venv.create(folder, with_pip=True, clear=True)
    pinned = [f"opentelemetry-{name}=={version}" for name in ("sdk", "exporter-otlp")]
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    others = [*map(floor, dependencies()), *FLOOR_OTHERS] if has_floors(version) else dependencies()
    subprocess.run([*pip, *pinned, *SDKS[version], *others, *OTHERS], check=True)
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "-e", str(ROOT)], check=True)
    stamp.write_text(recipe)
    return python


def passes(version: str) -> bool:
    """Whether the tests pass with this SDK."""
    print(f"== SDK {version}", flush=True)
    tests = [f"tests/{name}" for name in TESTS + (FLOOR_TESTS if has_floors(version) else ())]
    if SDKS[version]:
        tests.append("tests/flow/test_equal_scores.py")
    command = [str(environment(version)), "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    return (
        subprocess.run(
            command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False
        ).returncode
        == 0
    )


def main(versions: list[str]) -> int:
    """0 if every SDK passes."""
    unknown = set(versions) - SDKS.keys()
    if unknown:
        print(
            f"no such SDK here: {', '.join(sorted(unknown))}; there are {', '.join(SDKS)}",
            file=sys.stderr,
        )
        return 2
    failed = [version for version in versions or SDKS if not passes(version)]
    print(f"failed with SDK {', '.join(failed)}" if failed else "passed with every SDK")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
