"""The optional extension in C, and what depends on where the project is published; everything else
is in pyproject.toml.
"""

import os
import re
from glob import glob
from pathlib import Path

from setuptools import Extension, setup

# Optional: where it cannot be compiled the package works the same, only slower. OTEL_EVAL_PURE=1
# leaves it out, which makes the wheel for every system.
PARTS = glob("otel_eval/c/*.h")
EXTENSION = Extension("otel_eval._native", ["otel_eval/_native.c"], depends=PARTS, optional=True)

# The address under which the files of this repository can be read, such as
# https://host/owner/name/blob/v1.0. A release sets it: the page of a package index shows the README
# without the files beside it.
FILES = os.environ.get("OTEL_EVAL_FILES_URL", "").rstrip("/")
LINK = re.compile(r"(!?\[[^]]*\])\((?![a-z]+:|#)([^)]+)\)")


def readme() -> str:
    """The README, its links absolute where FILES is known."""
    text = Path("README.md").read_text(encoding="utf-8")
    return LINK.sub(absolute, text) if FILES else text


def absolute(link: re.Match[str]) -> str:
    """The link, or the picture, with the address of its file; of a picture its bytes and not the
    page about it.
    """
    return f"{link[1]}({FILES}/{link[2]}{'?raw=true' if link[1].startswith('!') else ''})"


setup(
    ext_modules=[] if os.environ.get("OTEL_EVAL_PURE") == "1" else [EXTENSION],
    long_description=readme(),
    long_description_content_type="text/markdown",
    project_urls={
        "Documentation": f"{FILES}/docs/reference/configuration.md",
        "Changelog": f"{FILES}/CHANGELOG.md",
        "Source": f"{FILES}/README.md",
    }
    if FILES
    else {},
)
