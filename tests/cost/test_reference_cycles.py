"""What a request leaves is freed once it was handled: a cycle of references would keep it until the
garbage collector runs.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_eval.engine import Engine
from otel_eval.otlp import Encoding, Signal
from tests.cost.costs.measuring import FORMS, Receiver, Sent, engine, sent
from tests.cost.costs.shapes import SHAPES
from tests.support.recorded_traces import FILES, FOLDER


@pytest.fixture(scope="module")
def made() -> Engine:
    return engine()


@pytest.fixture
def no_collection() -> Iterator[None]:
    """The garbage collector runs only where a test calls it, and what there was before does not
    count.
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


def cycles(made: Engine, requests: list[Sent], folder: Path) -> list[str]:
    """The functions and objects of the package in cycles after these requests, each with its
    module.
    """
    with Receiver(made, folder / "results.jsonl") as receiver:
        for each in requests:
            receiver.take(each)
        receiver.evaluate()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        # A class with slots replaces one without them, which is garbage since its module was
        # imported.
        left = [found for found in gc.garbage if not isinstance(found, type)]
        modules = [
            (found, getattr(found, "__module__", None) or type(found).__module__) for found in left
        ]
    return sorted(
        {
            f"{module}: {found!r:.80}"
            for found, module in modules
            if str(module).startswith("otel_eval")
        }
    )


@pytest.mark.parametrize("form", FORMS)
def test_requests_with_many_elements_leave_no_cycles(
    form: str, made: Engine, tmp_path: Path, no_collection: None
) -> None:
    """Bodies held until the next collection can be many times `max_bytes`: they are few objects, so
    it does not come soon.
    """
    requests = [request for shape in SHAPES for request in sent(shape.make(4), form)]
    assert cycles(made, requests, tmp_path) == []


def test_recorded_traces_leave_no_cycles(made: Engine, tmp_path: Path, no_collection: None) -> None:
    """With failed calls, messages, and everything else that instrumentations record."""
    requests = [
        Sent(Signal.TRACES, Encoding.JSON, False, (FOLDER / file).read_bytes()) for file in FILES
    ]
    assert cycles(made, requests, tmp_path) == []
