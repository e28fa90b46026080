"""Scores the tool-call trajectories of traced agents, from live OpenTelemetry spans or stored ones.

>>> from otel_eval import create_scorer
>>> from otel_eval.testing import call, trajectory
>>> at_most_three = create_scorer({"type": "tool_call_count", "criteria": {"search": "<= 3"}})
>>> at_most_three(trajectory(call("search", arguments={"q": "x"}, result="y"))).value
1.0

Public names are imported when they are first used, so that importing the package loads nothing that
is not needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from otel_eval.native import VERSION

if TYPE_CHECKING:
    from otel_eval.app.inprocess import EvalSpanExporter, EvalSpanProcessor
    from otel_eval.app.other_engines import evaluate
    from otel_eval.app.stored_traces import trajectories
    from otel_eval.config import EvalConfig
    from otel_eval.errors import ConfigError, InputError, OtelEvalError
    from otel_eval.exporters.console import ConsoleExporter
    from otel_eval.merging import merge_results
    from otel_eval.model import (
        UNRECORDED,
        Failed,
        Outcome,
        Scored,
        Skipped,
        ToolCall,
        ToolError,
        Trajectory,
        Verdict,
    )
    from otel_eval.scorers import create_scorer, get_scorer, list_scorers, scorer
    from otel_eval.trajectory.conversation import trajectory_from_messages

__version__: Final = VERSION

__all__ = [
    "UNRECORDED",
    "ConfigError",
    "ConsoleExporter",
    "EvalConfig",
    "EvalSpanExporter",
    "EvalSpanProcessor",
    "Failed",
    "InputError",
    "OtelEvalError",
    "Outcome",
    "Scored",
    "Skipped",
    "ToolCall",
    "ToolError",
    "Trajectory",
    "Verdict",
    "create_scorer",
    "evaluate",
    "get_scorer",
    "list_scorers",
    "merge_results",
    "scorer",
    "trajectories",
    "trajectory_from_messages",
]

_MODULES: Final = {
    "app.stored_traces": ("trajectories",),
    "app.inprocess": ("EvalSpanExporter", "EvalSpanProcessor"),
    "app.other_engines": ("evaluate",),
    "config": ("EvalConfig",),
    "exporters.console": ("ConsoleExporter",),
    "errors": ("ConfigError", "InputError", "OtelEvalError"),
    "merging": ("merge_results",),
    "model": (
        "UNRECORDED",
        "Failed",
        "Outcome",
        "Scored",
        "Skipped",
        "ToolCall",
        "ToolError",
        "Trajectory",
        "Verdict",
    ),
    "scorers": ("create_scorer", "get_scorer", "list_scorers", "scorer"),
    "trajectory.conversation": ("trajectory_from_messages",),
}
_MODULE_OF: Final = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
