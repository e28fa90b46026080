"""The extensions in C, compiled with sanitizers.

Knows the compiler's flags and how a sanitized library is loaded into an ordinary Python.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Final

__all__ = ["build", "environment"]

ROOT: Final = Path(__file__).parents[3]
FLAGS: Final = (
    "-g",
    "-O1",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",
)


def build(folder: Path) -> Path:
    """A folder with a copy of the package whose extensions are sanitized.

    Raises:
        subprocess.CalledProcessError: the compiler cannot.
    """
    copy = folder / "sanitized"
    shutil.copytree(
        ROOT / "otel_eval",
        copy / "otel_eval",
        dirs_exist_ok=True,
        ignore=shutil.ignore_patterns("*.so", "__pycache__"),
    )
    include = f"-I{sysconfig.get_paths()['include']}"
    for source in (ROOT / "otel_eval").glob("*.c"):
        target = copy / "otel_eval" / f"{source.stem}{sysconfig.get_config_var('EXT_SUFFIX')}"
        subprocess.run(
            ["gcc", "-shared", "-fPIC", *FLAGS, include, str(source), "-o", str(target)], check=True
        )
    return copy


def environment(copy: Path) -> dict[str, str]:
    """Variables with which Python loads that copy, the sanitizer before everything else, and
    allocates nothing in pools.
    """
    library = subprocess.run(
        ["gcc", "-print-file-name=libasan.so"], check=True, capture_output=True, text=True
    ).stdout.strip()
    return {
        "PYTHONPATH": f"{copy}{os.pathsep}{ROOT}",
        "LD_PRELOAD": library,
        "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0",  # an interpreter that ends keeps much
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
