"""The real products as fixtures. A test that needs one which is not installed is reported as not
run, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.dashboards.dashboard_rig import products
from tests.dashboards.dashboard_rig.tools import TOOLS

TEST_S = 600
_NOT_RUN = pytest.StashKey[dict[str, list[str]]]()


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark of a test that asks for its fixture only when it runs."""
    config.addinivalue_line(
        "markers", "tool(name): needs a dashboard's program, also where no fixture shows that"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what cannot run here: a tool is needed by whatever uses the fixture `<tool>_path`,
    also through others.
    """
    reasons = {name: reason for name, tool in TOOLS.items() if (reason := tool.missing())}
    not_run: dict[str, list[str]] = {}
    kept = []
    for item in items:
        marked = {mark.args[0] for mark in item.iter_markers("tool")}
        needed = [
            name
            for name in reasons
            if name in marked or f"{name}_path" in getattr(item, "fixturenames", ())
        ]
        for name in needed[:1]:
            not_run.setdefault(f"{name}: {reasons[name]}", []).append(item.nodeid)
        if not needed:
            # starting a product is part of the first test that uses it
            item.add_marker(pytest.mark.timeout(TEST_S))
            kept.append(item)
    config.stash[_NOT_RUN] = not_run
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Name every test that was not run."""
    for reason, tests in config.stash.get(_NOT_RUN, {}).items():
        terminalreporter.section(f"not run: {reason}", sep="-")
        for test in tests:
            terminalreporter.line(test)


def _path_of(tool: str) -> Callable[[], Path]:
    @pytest.fixture(scope="session", name=f"{tool}_path")
    def path() -> Path:
        return TOOLS[tool].find()

    return path


phoenix_path, mlflow_path, browser_path, chromium_path, kubernetes_path = map(
    _path_of, ("phoenix", "mlflow", "browser", "chromium", "kubernetes")
)
prometheus_path, promtool_path, prometheus3_path, grafana_schema_path = map(
    _path_of, ("prometheus", "promtool", "prometheus3", "grafana_schema")
)


@pytest.fixture(scope="session")
def phoenix(phoenix_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a running Phoenix."""
    server, url = products.phoenix(phoenix_path, tmp_path_factory.mktemp("phoenix"))
    with server:
        yield url


@pytest.fixture(scope="session")
def mlflow(mlflow_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a running MLflow."""
    server, url = products.mlflow(mlflow_path, tmp_path_factory.mktemp("mlflow"))
    with server:
        yield url
