"""One real broker for all tests. Without Java or the jars the tests are reported as not run, with
the reason.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kafka.kafka_rig.broker import Broker, missing

TEST_S = 900
_NOT_RUN = pytest.StashKey[tuple[str, list[str]]]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs a broker, where none can be started."""
    mine = [
        item for item in items if {"broker", "secure_broker"} & {*getattr(item, "fixturenames", ())}
    ]
    for item in mine:
        item.add_marker(pytest.mark.timeout(TEST_S))
    if mine and (reason := missing()):
        config.stash[_NOT_RUN] = (reason, [item.nodeid for item in mine])
        config.hook.pytest_deselected(items=mine)
        items[:] = [item for item in items if item not in mine]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Name every test that was not run."""
    reason, tests = config.stash.get(_NOT_RUN, ("", []))
    if tests:
        terminalreporter.section(f"not run: {reason}", sep="-")
        for test in tests:
            terminalreporter.line(test)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that runs; a test that ends it starts it again."""
    with Broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker
