"""Builds the Collector of tests/collector/manifest.yaml with the Collector's own builder, once for
each content of the manifest.

    python -m tests.support.collector_build

Prints the path of the program. It is kept in `${XDG_CACHE_HOME:-~/.cache}/otel-eval`, outside the
tree, under the manifest's checksum. Without Go, prints that it is not run, and ends with 0.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

__all__ = ["NotRunError", "build", "built"]

MANIFEST: Final = Path(__file__).parents[1] / "collector" / "manifest.yaml"
BUILDER: Final = "go.opentelemetry.io/collector/cmd/builder@v0.158.0"
NAME: Final = "otelcol-eval"


class NotRunError(Exception):
    """The Collector cannot be built here; the message says why."""


def _folder() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    checksum = hashlib.sha256(MANIFEST.read_bytes() + BUILDER.encode()).hexdigest()[:12]
    return cache / "otel-eval" / f"collector-{checksum}"


def built() -> Path | None:
    """The program, if it was built before."""
    program = _folder() / NAME
    return program if program.exists() else None


def build() -> Path:
    """The program, built if it was not before; a build takes some seven minutes of a processor.

    Raises:
        NotRunError: there is no Go.
        subprocess.CalledProcessError: the builder failed; it wrote why to stderr.
    """
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two builds at once would do the work twice
        return built() or _build(folder)


def _build(folder: Path) -> Path:
    go = shutil.which("go")
    if go is None:
        raise NotRunError("there is no Go; install Go 1.25 or newer, or put it on PATH")
    with tempfile.TemporaryDirectory(dir=folder) as work:
        command = [go, "run", BUILDER, "--config", str(MANIFEST)]
        subprocess.run(command, check=True, stdout=sys.stderr, env=_environment(go), cwd=work)
        return (Path(work) / "build" / NAME).rename(folder / NAME)


def _environment(go: str) -> dict[str, str]:
    """Without a fall-back to version control, so that a missing module fails at once."""
    proxies = subprocess.run(
        [go, "env", "GOPROXY"], check=True, capture_output=True, text=True
    ).stdout.strip()
    return {**os.environ, "CGO_ENABLED": "0", "GOPROXY": proxies.removesuffix(",direct")}


if __name__ == "__main__":
    try:
        print(build())
    except NotRunError as error:
        print(f"make collector: not run: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(
            f"make collector: the builder failed with {error.returncode}; is the Go module proxy"
            " within reach?"
        )
