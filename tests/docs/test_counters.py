"""Every counter that a program or an operator can look at is explained on some page."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from otel_eval import EvalSpanExporter, EvalSpanProcessor
from otel_eval.app.server import Server
from otel_eval.config import load
from otel_eval.counters import CountName
from tests.support.doc_pages import PAGES
from tests.support.otlp_backend import ANYWHERE

TEXT = "\n".join(
    page.read_text(encoding="utf-8") for page in PAGES if page.parent.name != "development"
)
FORWARDS = {
    "receivers": ANYWHERE,
    "exporters": {"forward": {"endpoint": "http://127.0.0.1:1"}, "jsonl": {"path": "-"}},
}


class Nowhere:
    """An exporter that is never called."""

    def export(self, spans: object) -> None:
        """Not called."""

    def shutdown(self) -> None:
        """Nothing to end."""


def of_the_receiver() -> Mapping[CountName, Any]:
    """One that forwards, too."""
    server = Server(load(FORWARDS))
    server.start()
    try:
        return server.counts()
    finally:
        server.stop(1)


def of_a_processor() -> Mapping[str, Any]:
    """Before the first span."""
    processor = EvalSpanProcessor({"exporters": {"jsonl": {"path": "-"}}})
    try:
        return processor.counts()
    finally:
        processor.shutdown()


def of_an_exporter() -> Mapping[str, Any]:
    """Before the first span."""
    exporter = EvalSpanExporter(Nowhere())  # type: ignore[arg-type]
    try:
        return exporter.counts()
    finally:
        exporter.shutdown()


@pytest.mark.parametrize("counts", [of_the_receiver, of_a_processor, of_an_exporter])
def test_every_counter_is_documented(counts: Callable[[], Mapping[CountName, Any]]) -> None:
    """By its name without labels."""
    names = {str(name).partition("{")[0] for name in counts()}
    assert len(names) > 5
    assert sorted(name for name in names if not re.search(rf"`{re.escape(name)}[`{{]", TEXT)) == []
