"""What happens to results and to forwarded requests for each response of an endpoint, as documented
in the page on delivery.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from tests.support.doc_pages import document
from tests.support.response_matrix import RESPONSES, RIGS, outcomes, page

# A connection that is reset before its TLS handshake is freed by the interpreter's own ssl module,
# but not closed.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")

LIKE_AN_OUTAGE = {
    "302",
    "404",
    "200 with a page",
    "405",
    "501",
    "503",
    "429",
    "UNIMPLEMENTED",
    "UNAVAILABLE",
    "connection refused",
    "timeout",
}

Column = Callable[[str, str, bool, bool], dict[str, str]]


@pytest.fixture(scope="module")
def column(session_authority: Any, tmp_path_factory: pytest.TempPathFactory) -> Column:
    """The outcomes by response: for an exporter, a protocol, whether it worked before, with or
    without storage.
    """
    found: dict[tuple[str, str, bool, bool], dict[str, str]] = {}

    def tried(exporter: str, protocol: str, worked: bool, kept: bool) -> dict[str, str]:
        key = (exporter, protocol, worked, kept)
        if key not in found:
            folder = tmp_path_factory.mktemp("refusals")
            found[key] = outcomes(
                exporter, protocol, folder, session_authority, worked=worked, kept=kept
            )
        return found[key]

    return tried


def combinations() -> list[Any]:
    """Exporter, protocol, whether it worked before, whether there is storage. Those that are not
    slow have every exporter with both protocols, one of which worked before, with storage, and the
    other one neither.
    """
    kinds = {"worked before": True, "never worked": False}
    stores = {"storage": True, "no storage": False}
    rows = product(enumerate(RIGS), enumerate(RESPONSES), kinds, stores)
    return [
        pytest.param(
            *(exporter, protocol, kinds[kind], stores[store]),
            id=f"{exporter}, {protocol}, {kind}, {store}",
            marks=()
            if kinds[kind] == stores[store] == ((number + other) % 2 == 0)
            else pytest.mark.slow,
        )
        for (number, exporter), (other, protocol), kind, store in rows
    ]


@pytest.mark.parametrize(("exporter", "protocol", "worked", "kept"), combinations())
def test_an_endpoint_that_worked_before_is_tried_again(
    exporter: str, protocol: str, worked: bool, kept: bool, column: Column
) -> None:
    """An outage loses nothing, and an endpoint that never worked is tried again after a minute."""
    found = column(exporter, protocol, worked, kept)
    outages = {found[each] for each in found.keys() & LIKE_AN_OUTAGE}
    assert outages == {"delivered later"} if worked else outages <= {"delivered later", *MARKED}


MARKED = {
    f"{lost}; one tried each minute"
    for lost in (
        "waits 15 minutes, then dead letter",
        "waits 15 minutes, then dropped",
        "kept in the sum",
    )
}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_documentation_has_the_table(column: Column) -> None:
    """As it is printed here."""
    printed = page(column)
    print(printed)
    assert printed in document("delivery.md").read_text(encoding="utf-8")
