"""Build the source distribution and the wheel, install each in a clean environment, and run the
demonstration there.

    python tests/distribution [PYTHON ...]

Without interpreters the running one is used. Needs a package index.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """What it prints; ends if it fails."""
    return subprocess.run(
        list(map(str, command)), cwd=cwd, check=True, text=True, stdout=subprocess.PIPE
    ).stdout


def environment(python: str, folder: Path, *packages: str | Path) -> Path:
    """A clean interpreter with these packages."""
    run(python, "-m", "venv", folder)
    made = folder / "bin" / "python"
    run(made, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
    return made


def main(pythons: list[str]) -> int:
    """0 if every archive works; else the failing command's error ends the program."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        builder = environment(sys.executable, folder / "builder", "build>=1.2,<2")
        run(builder, "-m", "build", "--outdir", folder / "dist", ROOT)
        for number, python in enumerate(pythons):
            for archive in (folder / "dist").iterdir():
                if archive.suffix == ".whl" and python != sys.executable:
                    continue  # it is for the running Python alone
                made = environment(python, folder / f"{archive.suffix[1:]}-{number}", archive)
                told = run(made, "-m", "otel_eval", "--version", cwd=folder).strip()
                run(made, "-m", "pip", "check", cwd=folder)
                run(made, ROOT / "examples/demo.py", cwd=folder)
                print(f"{archive.name}: {told}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:] or [sys.executable]))
