"""What a type checker says of wrong records: `make types` fails if a line here is no error."""

from __future__ import annotations

from dataclasses import replace

from otel_eval.interfaces import ClosedTrace
from otel_eval.model import Report, ToolCall, Trajectory

run = Trajectory(agent="planner", name="invoke_agent planner", calls=(ToolCall(name="a"),))
Trajectory((), "trace", "span", "invoke_agent planner", "planner")  # type: ignore[call-arg]
Trajectory(agent=None)  # type: ignore[arg-type]
Trajectory(agents="planner")  # type: ignore[call-arg]
ToolCall()  # type: ignore[call-arg]
ToolCall("search")  # type: ignore[call-arg]
replace(run, start_ns="now")  # type: ignore[arg-type]
run.agent = "another"  # type: ignore[misc]
run.calls[0].name = "b"  # type: ignore[misc]
ClosedTrace(b"", {}, "complete")  # type: ignore[arg-type]
Report(run, "e", "0", ())  # type: ignore[arg-type]
