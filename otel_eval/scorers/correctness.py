"""Whether the right tools were called: by alignment, and by a judge of the choice where the tools there are known.

Knows what is compared and what the judge is asked; the alignment is `matching`'s, the asking `asking`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final

from otel_eval.errors import ConfigError
from otel_eval.model import Outcome, Trajectory
from otel_eval.scorers.alignment.expected import Comparison, Expectation, calls
from otel_eval.scorers.asking import asked, at_once, failed, judge_of, opinion_of
from otel_eval.scorers.built_in import Finding
from otel_eval.scorers.judging import Judge
from otel_eval.scorers.matching import MATCHES, MEASURES, Matching, arguments_mode
from otel_eval.scorers.parameters import (
    STRING,
    collect_errors,
    described,
    one_of,
    optional,
    reads,
    redacted_repr,
    share,
    text,
    wrong,
)
from otel_eval.scorers.prompts import TooLong, prompt_of, recorded
from otel_eval.scorers.registry import scorer
from otel_eval.scorers.tool_names import ToolNames

__all__ = ["ToolCorrectness"]

_COMPARED: Final = one_of("arguments", "result")
_CALLS: Final = calls("arguments", "result")


@described({"type": "array", "items": {"enum": ["arguments", "result"]}})
def _compare(key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise wrong(key, value, "a list of arguments and result", f"write e.g. {key}: [arguments]")
    return tuple(collect_errors(partial(_COMPARED, f"{key}[{place}]", each) for place, each in enumerate(value)))


@described({"type": "array", "items": {"anyOf": [STRING, {"type": "object", "required": ["name"]}]}})
def _tools(key: str, value: Any) -> tuple[Mapping[str, Any], ...]:
    """Names, or mappings of a name and whatever else tells a judge what the tool is for."""
    if not isinstance(value, list | tuple):
        raise wrong(key, value, "a list of tools", f"write e.g. {key}: [search, {{name: refund, description: pays back}}]")
    return tuple(collect_errors(partial(_tool, f"{key}[{place}]", each) for place, each in enumerate(value)))


def _tool(key: str, value: Any) -> Mapping[str, Any]:
    tool = value if isinstance(value, Mapping) else {"name": value}
    if not isinstance(tool.get("name"), str) or not tool["name"]:
        raise wrong(key, value, "a tool's name, or a mapping with one", f"write e.g. {key}: {{name: search}}")
    return tool


_CHOICE: Final = """You judge which tools an agent chose for its task, out of the tools that it had.
1 if it called every tool that the task asked for and no other; 0 if it called none of them; in between as far as the
choice was right. How the tools were called, what came back and how well the task was done do not count."""


@scorer("tool_correctness")
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCorrectness(Matching):
    """Whether the right tools were called, with the right arguments and results where these are compared. 1 is best.

    Weight of the alignment / number expected (`measure: precision`: / number called). Range 0-1. Skipped: something
    is compared that a same-named call did not record.

    With `available_tools` a judge says how well the tools were chosen for the run's input, and the value is the smaller
    of the two; details `alignment` and `selection`. A judge that fails leaves `alignment` in the details.

    >>> from otel_eval.testing import call, trajectory
    >>> tools = ToolCorrectness(expected=_CALLS("expected", [{"name": "search"}]), measure="precision")
    >>> tools(trajectory(call("search"), call("open"))).value
    0.5
    """

    type: ClassVar[str] = "tool_correctness"

    expected: Expectation | None = field(default=None, metadata=reads(_CALLS))
    match: str = field(default="any_order", metadata=reads(one_of(*MATCHES)))
    compare: tuple[str, ...] = field(default=(), metadata=reads(_compare))
    arguments: str | tuple[str, ...] = field(default="overlap", metadata=reads(arguments_mode))
    measure: str = field(default="recall", metadata=reads(one_of(*MEASURES)))
    available_tools: tuple[Mapping[str, Any], ...] = field(default=(), metadata=reads(_tools))
    judge: Judge | None = field(default=None, metadata=reads(optional(judge_of)))
    prompt: str | None = field(default=None, metadata=reads(optional(text)))
    sample: float = field(default=1.0, metadata=reads(share))

    def prepare(self) -> None:
        """Check that there is an expectation, and a judge where one is needed."""
        Matching.prepare(self)
        if self.available_tools and self.judge is None:
            given = redacted_repr([tool["name"] for tool in self.available_tools])
            raise ConfigError(f"available_tools: {given} needs a judge; add judge: the name of one of `judges`, or leave it out")

    @property
    def default_threshold(self) -> float:
        """1; 0.5 where a judge is asked."""
        return 0.5 if self.available_tools else 1.0

    @property
    def asynchronous(self) -> bool:
        """Whether a judge is asked."""
        return bool(self.available_tools)

    @property
    def named_tools(self) -> ToolNames:
        """The expected tools, and those that were available."""
        available = tuple(tool["name"] for tool in self.available_tools)
        return super(ToolCorrectness, self).named_tools | ToolNames(forbidden=available)

    @property
    def needs(self) -> frozenset[str]:
        """What is compared; the run's input where a judge is asked."""
        return super(ToolCorrectness, self).needs | ({"content"} if self.available_tools else set())

    @property
    def how(self) -> str:
        """As given."""
        return self.match

    @property
    def ratio(self) -> str:
        """As given."""
        return self.measure

    @property
    def compared(self) -> Comparison:
        """What `compare` lists."""
        by = self.arguments if "arguments" in self.compare else None
        return Comparison(arguments=by, results="result" in self.compare)

    def prompt_for(self, trajectory: Trajectory) -> str:
        """The task, the tools there are, and those that were called."""
        called = [call.name for call in trajectory.calls]
        data = recorded(task=trajectory.input, available_tools=list(self.available_tools), called_tools=called)
        return prompt_of(self.prompt or _CHOICE, data)

    async def opinion(self, trajectory: Trajectory) -> Finding | Outcome:
        """The alignment, and a judge's score of the choice: the smaller counts."""
        found = self.find(trajectory)
        if not isinstance(found, Finding) or self.judge is None:
            return found
        details = {**found.details, "alignment": found.value}
        try:
            choice = await opinion_of(self.judge, self.prompt_for(trajectory), include_content=self.include_content)
        except TooLong:
            raise
        except Exception as error:  # noqa: BLE001 - a judge from Python may raise anything; that is an outcome
            return failed(error, details)
        said = f"{found.explanation}; of the choice of tools {choice.explanation}"
        return Finding(min(found.value, choice.value), said, {**details, "selection": choice.details})

    async def evaluate(self, trajectory: Trajectory) -> Outcome:
        """The outcome for one run, once the judge has answered."""
        return await asked(self, trajectory, self.opinion)

    def __call__(self, trajectory: Trajectory) -> Outcome:
        """The same for a caller that does not wait."""
        return at_once(self.evaluate, trajectory) if self.available_tools else Matching.__call__(self, trajectory)
