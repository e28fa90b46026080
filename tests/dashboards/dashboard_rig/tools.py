"""The programs that the tests start: installed once into a cache outside the tree, or missing for a
reason that is reported.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

CACHE = (
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "otel-eval" / "dashboards"
)
PHOENIX = "arize-phoenix==20.26.1"
MLFLOW = "mlflow==3.17.2"
KUBERNETES = "kubernetes-validate==1.37.0"
BROWSER = ("playwright>=1.50,<2", "pillow>=11,<13")
GRAFANA_SCHEMA = ("@grafana/schema@13.2.3", "typescript@5.9")
PROMETHEUS = "github.com/prometheus/prometheus"
# Prometheus 3.9.1; later ones need assets of the web UI that the module does not have
PROMETHEUS_VERSION = "v0.309.1"
INSTALL_S = 1200


class NotInstalled(Exception):
    """A tool cannot be had here; the text is the reason."""


@dataclass(frozen=True)
class Tool:
    """A program by the name that tests use: `find` returns where it is or raises `NotInstalled`,
    `install` puts it there.
    """

    name: str
    find: Callable[[], Path]
    install: Callable[[], None] = lambda: None

    def missing(self) -> str | None:
        """Why it is not here, in one line."""
        try:
            self.find()
        except NotInstalled as error:
            failed = CACHE / f"{self.name}.failed"
            return failed.read_text(encoding="utf-8") if failed.exists() else str(error)
        return None


def install_all() -> None:
    """Install what is missing; a failure is remembered as the reason why tests are not run."""
    CACHE.mkdir(parents=True, exist_ok=True)
    for tool in TOOLS.values():
        failed = CACHE / f"{tool.name}.failed"
        failed.unlink(missing_ok=True)
        try:
            if tool.missing():
                print(f"installing {tool.name} into {CACHE}", flush=True)
                tool.install()
        except NotInstalled as error:
            failed.write_text(str(error), encoding="utf-8")


def _run(*command: str | Path, cwd: Path | None = None, **environment: str) -> str:
    """Run it to its end; what it printed."""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | environment
    try:
        done = subprocess.run(
            [*map(str, command)],
            cwd=cwd,
            env=env,
            capture_output=True,
            text=True,
            timeout=INSTALL_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"{Path(command[0]).name} did not end within {INSTALL_S} s") from None
    if done.returncode:
        raise NotInstalled(
            f"{Path(command[0]).name} failed:"
            f" {(done.stderr.strip().splitlines() or ['no message'])[-1]}"
        )
    return done.stdout


def _environment(name: str, script: str, *packages: str) -> Tool:
    """A program of Python packages in an environment of its own; the stamp names what is in it."""
    home = CACHE / name
    stamp = home / "installed"

    def find() -> Path:
        if not stamp.exists() or stamp.read_text(encoding="utf-8") != "\n".join(packages):
            raise NotInstalled(f"{packages[0]} is not installed; make dashboards installs it")
        return home / "bin" / script

    def install() -> None:
        venv.create(home, with_pip=True, clear=True)
        _run(
            home / "bin" / "python",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            *packages,
        )
        stamp.write_text("\n".join(packages), encoding="utf-8")

    return Tool(name, find, install)


def _on_path(name: str) -> Tool:
    def find() -> Path:
        if (found := shutil.which(name)) is None:
            raise NotInstalled(f"{name} is not on PATH; Debian has a package of it")
        return Path(found)

    return Tool(name, find)


def _grafana_schema() -> Tool:
    """The types that Grafana publishes, with the compiler that reads them."""
    home = CACHE / "grafana-schema"
    stamp, package = home / "installed", home / "node_modules" / "@grafana" / "schema"

    def find() -> Path:
        if not stamp.exists() or stamp.read_text(encoding="utf-8") != "\n".join(GRAFANA_SCHEMA):
            raise NotInstalled(f"{GRAFANA_SCHEMA[0]} is not installed; make dashboards installs it")
        return package

    def install() -> None:
        if (npm := shutil.which("npm")) is None:
            raise NotInstalled("npm is not on PATH, which installs Grafana's schema")
        home.mkdir(exist_ok=True)
        (home / "package.json").write_text("{}", encoding="utf-8")
        quiet = ("--silent", "--no-audit", "--no-fund", "--ignore-scripts")
        _run(npm, "install", *quiet, *GRAFANA_SCHEMA, cwd=home)
        stamp.write_text("\n".join(GRAFANA_SCHEMA), encoding="utf-8")

    return Tool("grafana_schema", find, install)


def _prometheus3() -> Tool:
    """Built from the Go module proxy: Debian's Prometheus 2 has no OTLP receiver.

    Without its discovery of targets in clouds, which would be most of the build.
    """
    binary, source = CACHE / f"prometheus-{PROMETHEUS_VERSION}", CACHE / "prometheus-source"

    def find() -> Path:
        if not binary.exists():
            raise NotInstalled(
                f"Prometheus {PROMETHEUS_VERSION} is not built; make dashboards builds it where Go"
                " is installed"
            )
        return binary

    def install() -> None:
        if (go := shutil.which("go")) is None:
            raise NotInstalled("go is not on PATH, which builds Prometheus 3")
        proxy = {"GOPROXY": _run(go, "env", "GOPROXY").strip().removesuffix(",direct")}
        version = f"{PROMETHEUS}@{PROMETHEUS_VERSION}"
        module = json.loads(_run(go, "mod", "download", "-json", version, cwd=CACHE, **proxy))
        shutil.rmtree(source, ignore_errors=True)
        shutil.copytree(module["Dir"], source, copy_function=shutil.copyfile)
        for folder in (source, *filter(Path.is_dir, source.rglob("*"))):
            folder.chmod(0o755)
        (source / "plugins" / "plugins.go").write_text("package plugins\n", encoding="utf-8")
        _run(go, "build", "-mod=mod", "-o", binary, "./cmd/prometheus", cwd=source, **proxy)
        shutil.rmtree(source)

    return Tool("prometheus3", find, install)


TOOLS = {
    tool.name: tool
    for tool in (
        _environment("phoenix", "phoenix", PHOENIX),
        _environment("mlflow", "mlflow", MLFLOW),
        _environment("browser", "python", *BROWSER),
        _environment("kubernetes", "kubernetes-validate", KUBERNETES),
        _on_path("chromium"),
        _on_path("prometheus"),
        _on_path("promtool"),
        _prometheus3(),
        _grafana_schema(),
    )
}
