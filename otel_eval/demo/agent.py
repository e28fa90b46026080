"""A scripted travel agent, traced with the OpenTelemetry SDK by the GenAI conventions; it calls no model and no service.

It looks up the weather of two cities at the same time, books a flight on a date that does not exist, reads the error and
books again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, Final

from opentelemetry.trace import Span, Status, StatusCode, Tracer

__all__ = ["travel"]

_WEATHER: Final = {"Paris": "rain, 9 degrees", "Oslo": "sun, 3 degrees"}


def get_weather(city: str) -> str:
    """The weather, after a moment of thought."""
    time.sleep(0.12)
    return _WEATHER[city]


def book_flight(destination: str, date: str) -> str:
    """The number of a booking.

    Raises:
        ValueError: there is no such date.
    """
    time.sleep(0.05)
    if int(date[5:7]) > 12:
        raise ValueError(f"no such date: {date}")
    return "booking 4711"


def travel(tracer: Tracer) -> str:
    """One run of the agent; its answer."""
    with _span(tracer, "invoke_agent travel", "invoke_agent", {"gen_ai.agent.name": "travel"}):
        _think(tracer)
        _side_by_side(
            lambda: _use(tracer, get_weather, city="Paris"),
            lambda: _use(tracer, get_weather, city="Oslo"),
        )
        _think(tracer)
        try:
            booked = _use(tracer, book_flight, destination="Oslo", date="2026-13-40")
        except ValueError:
            _think(tracer)
            booked = _use(tracer, book_flight, destination="Oslo", date="2026-12-01")
        return f"Oslo it is: {booked}"


def _side_by_side(*tasks: Callable[[], Any]) -> None:
    with ThreadPoolExecutor(len(tasks)) as pool:
        for done in [pool.submit(copy_context().run, task) for task in tasks]:
            done.result()


def _think(tracer: Tracer) -> None:
    with _span(tracer, "chat scripted", "chat", {"gen_ai.request.model": "scripted"}):
        time.sleep(0.02)


def _use(tracer: Tracer, tool: Callable[..., str], **arguments: str) -> str:
    described = {
        "gen_ai.tool.name": tool.__name__,
        "gen_ai.tool.call.arguments": json.dumps(arguments),
    }
    with _span(tracer, f"execute_tool {tool.__name__}", "execute_tool", described) as span:
        result = tool(**arguments)
        span.set_attribute("gen_ai.tool.call.result", result)
        return result


@contextmanager
def _span(tracer: Tracer, name: str, operation: str, attributes: dict[str, str]) -> Iterator[Span]:
    described = {"gen_ai.operation.name": operation, **attributes}
    with tracer.start_as_current_span(name, attributes=described, set_status_on_exception=False) as span:
        try:
            yield span
        except ValueError as error:
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(Status(StatusCode.ERROR, str(error)))
            raise
