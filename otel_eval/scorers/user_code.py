"""Users' code: where it failed, whether it is a coroutine function, and the copies of runs that it
gets.
"""

from __future__ import annotations

import inspect
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any, Final

from otel_eval.model import ImmutableCall, ImmutableTrajectory, ToolCall, Trajectory, Unnamed
from otel_eval.records import make_immutable

_OURS: Final = str(Path(__file__).parents[1]) + "/"
_MACHINERY: Final = "<frozen importlib"


def user_code_location(error: BaseException) -> str:
    """`file:line` of the innermost frame in the file that this package called; "" if the error is
    not from a user's code.

    The innermost frame of all may be in a library; the line that called it is more useful.
    """
    frames = _frames(error)
    return (
        f"{frames[0][0]}:{[line for file, line in frames if file == frames[0][0]][-1]}"
        if frames
        else ""
    )


def describe_import_error(error: BaseException) -> str:
    """Describe an error raised by an import: its type, the missing module if there is one, and the
    line that failed.
    """
    kind = type(error).__name__
    if isinstance(error, SyntaxError):
        return f"{kind}, line {error.lineno} of {error.filename}"
    if isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
        # of a URL the rest may be secret
        name = error.name if error.name and error.name.isidentifier() else "such attribute"
        return f"{kind}: {error.obj.__name__} has no {name}"
    missing = (
        f": no module named {error.name!r}"
        if isinstance(error, ModuleNotFoundError) and error.name
        else ""
    )
    frames = _frames(error)
    at = f", line {frames[-1][1]} of {frames[-1][0]}" if frames else ""
    raised_in = [frame.f_code.co_filename for frame, _ in walk_tb(error.__traceback__)][-1:]
    # for instance by `@scorer`
    refused = f": {error}" if raised_in and raised_in[0].startswith(_OURS) else ""
    return f"{kind}{missing}{at}{refused}"


def _frames(error: BaseException) -> list[tuple[str, int]]:
    """File and line of each frame of the traceback that is neither ours nor the import
    machinery's.
    """
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    return [
        (file, line)
        for file, line in frames
        if not file.startswith((_OURS, _MACHINERY)) and "/importlib/" not in file
    ]


def is_coroutine_function(function: object) -> bool:
    """Whether `function` is a coroutine function, or an object whose `__call__` is one."""
    call_method = getattr(type(function), "__call__", None)  # noqa: B004 - inspects it
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call_method)


def run_coroutine(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in a new event loop, and return its result.

    Raises:
        RuntimeError: an event loop runs in this thread; the coroutine is closed without having
            started.
    """
    # Imported only if a scorer is a coroutine function: importing asyncio takes longer than
    # importing this package.
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    coroutine.close()
    raise RuntimeError(
        "an event loop is running in this thread; await scorer.evaluate(trajectory) instead"
    )


def private_copy(trajectory: Trajectory, needs: frozenset[str]) -> Trajectory:
    """The trajectory for a user-defined scorer that reads `needs`: immutable, with copies of every
    JSON value that could be changed in place, and without tokens if it does not need them, so that
    its score does not depend on what else reads them.

    Arguments, results, input, output and attributes are shared by all scorers of a run. The cost is
    proportional to what was recorded; a value nested deeper than Python recurses raises
    `RecursionError`, which fails the scorer's result.
    """
    reads_tokens = "tokens" in needs
    copy = replace(
        trajectory,
        input_tokens=trajectory.input_tokens if reads_tokens else None,
        output_tokens=trajectory.output_tokens if reads_tokens else None,
        calls=tuple(map(_copy_call, trajectory.calls)),
        input=_copy_value(trajectory.input),
        output=_copy_value(trajectory.output),
        attributes=_copy_value(dict(trajectory.attributes)),
        resource=_copy_value(dict(trajectory.resource)),
    )
    return make_immutable(copy, ImmutableTrajectory)


def _copy_call(call: ToolCall) -> ToolCall:
    copy = replace(call, arguments=_copy_value(call.arguments), result=_copy_value(call.result))
    return make_immutable(copy, ImmutableCall)


def _copy_value(value: object) -> Any:
    if isinstance(value, dict):
        copied = {key: _copy_value(member) for key, member in value.items()}
        return Unnamed(copied) if type(value) is Unnamed else copied
    return [_copy_value(member) for member in value] if isinstance(value, list) else value
