"""The scorers that ask a judge: about an answer, about a whole run, and about the choice of
tools.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
)

from otel_eval.errors import ConfigError, redacted_repr
from otel_eval.model import UNRECORDED, Outcome, Skipped, Trajectory
from otel_eval.records import frozen_record
from otel_eval.scorers.alignment.expected import CallList, Comparison
from otel_eval.scorers.base_scorer import Finding, Requirements
from otel_eval.scorers.calls import Match, Matching, Measure, Mode
from otel_eval.scorers.judge import (
    AskingScorer,
    JudgeScorer,
    JudgeSpec,
    build_prompt,
    calls_as_data,
    failed,
    judge_score,
    without_unrecorded,
)
from otel_eval.scorers.outcomes import NoScore
from otel_eval.scorers.parameters import Name, Text
from otel_eval.scorers.references import Reference, RunReference
from otel_eval.scorers.registry import scorer
from otel_eval.scorers.tool_names import ToolNames
from otel_eval.scorers.values import recorded_field
from otel_eval.validation import (
    MAPPING,
    OTHER,
    TEXT,
    Items,
    ReadAs,
    Share,
    Words,
    one_of,
    own_words,
)

_COMPARE: Final = """You compare an answer with a reference answer to the same question.
The reference answer is right. Say how far the answer agrees with it in substance: 1 if it says all
that the reference answer says and nothing that contradicts it, 0 if it says none of it or
contradicts it, and in between as far as it agrees.
Wording, order, length and style do not count."""

_JUDGE: Final = """You judge what an agent did: what it was asked, which tools it called in which
order, what came back, and what it answered. Judge by these criteria alone:"""


_Answer = Annotated[
    Annotated[Text, Tag(OTHER)] | Annotated[RunReference, Tag(MAPPING)],
    Discriminator(lambda value: MAPPING if isinstance(value, Mapping | Reference) else OTHER),
]
"""The name of an attribute or field, or a reference to a record in a dataset."""


@scorer("answer_accuracy")
@frozen_record
class AnswerAccuracy(JudgeScorer):
    """How far the run's output agrees with a reference answer, by a judge's score. 1 is best, range
    0-1.

    The judge is shown the question, the reference answer and the output, and compares the last two.
    Details: `score`, and with `include_content` `explanation`. Skipped: question, answer or output
    was not recorded. Failed: the judge is down, or answers anything but `{"score": 0..1,
    "explanation": …}`, see [judges.md](../how-to/judges.md).

    Attributes:
        question: the attribute, or the field of the run's input, that holds the question; `input`
            is the whole input.
        answer: the attribute, or the field of the run's input, that holds the reference answer; or
            a dataset, as in [References](#references).

    Example:
        type: answer_accuracy
        judge: {base_url: "https://models.example/v1", model: some-model}
        question: input
        answer: expected.answer

    >>> from otel_eval.testing import trajectory
    >>> async def judge(prompt: str) -> str:
    ...     return '{"score": 0.5, "explanation": "half of it"}'
    >>> asked = trajectory(
    ...     input={"question": "Where?", "answer": "Rome, in May"}, output="In Rome."
    ... )
    >>> AnswerAccuracy(judge=judge)(asked).value
    0.5
    """

    question: Text = "question"
    answer: _Answer = "answer"

    def requires(self) -> Requirements:
        """The run's input and output, and the attributes that may hold question and answer."""
        keys = {self.question, *({self.answer} if isinstance(self.answer, str) else ())}
        return Requirements(needs=frozenset({"content"}), attributes=frozenset(keys), calls=False)

    @property
    def references(self) -> tuple[Reference, ...]:
        """Where reference answers are, if that is a dataset."""
        return (self.answer,) if isinstance(self.answer, Reference) else ()

    def prompt_for(self, trajectory: Trajectory) -> str:
        """The prompt with question, reference answer and answer.

        Raises:
            NoScore: one of them is missing, or the prompt would be too long.
        """
        inputs = partial(recorded_field, trajectory, within=("input",))
        if isinstance(self.answer, Reference):
            answer, name = self.answer.of(trajectory), self.answer.field
        else:
            answer, name = inputs(self.answer), self.answer
        if isinstance(answer, Skipped):
            raise NoScore(answer)
        data = {
            "question": inputs(self.question),
            "reference_answer": answer,
            "answer": trajectory.output,
        }
        missing = [
            name
            for name, value in zip((self.question, name, "output"), data.values(), strict=True)
            if value is UNRECORDED or value is None
        ]
        if missing:
            raise NoScore(Skipped(f"not recorded: {', '.join(missing)}", reason="not_recorded"))
        return build_prompt(self.prompt or _COMPARE, data)


def _rubric_text(meanings: Mapping[float, str]) -> str:
    return "\n".join(f"{score:g}: {text.strip()}" for score, text in sorted(meanings.items()))


_Meanings = Annotated[
    dict[Share, Annotated[str, Field(strict=True)]],
    Field(min_length=1),
    AfterValidator(_rubric_text),
    Words("is not a text, or scores from 0 to 1 with a text each; write e.g. {0: rude, 1: polite}"),
    # keys of JSON are texts
    WithJsonSchema({"type": "object", "minProperties": 1}),
]
_Rubric = Annotated[
    str,
    ReadAs(one_of({OTHER: Text, MAPPING: _Meanings})),
]
"""A text, or a mapping of scores from 0 to 1 to what each stands for."""


@scorer("llm_judge")
@frozen_record
class LlmJudge(JudgeScorer):
    """A judge's score of the whole run: its input, its calls with arguments and results, its
    output. 1 is best.

    Range 0-1. The judge is shown the run's input, its calls with arguments, results and errors, and
    its output. Details: `score`, and with `include_content` `explanation`. Skipped: the prompt has
    more than 400,000 characters. Failed: as `answer_accuracy`.

    Attributes:
        criteria: what counts, in words.
        rubric: what scores stand for: a text, or a mapping of scores from 0 to 1.
        prompt: replaces the instruction to the judge, before the criteria; what was recorded and
            the form of the answer are always added.

    Example:
        type: llm_judge
        judge: {base_url: "https://models.example/v1", model: some-model}
        criteria: The agent looks a fact up before it states it.
        rubric: {0: "states what it did not look up", 1: "looked up all that it states"}

    >>> from otel_eval.testing import call, trajectory
    >>> async def judge(prompt: str) -> str:
    ...     return '{"score": 1, "explanation": "it looked before it answered"}'
    >>> LlmJudge(judge=judge, criteria="It looks things up before it answers.")(
    ...     trajectory(call("search"))
    ... ).value
    1.0
    """

    criteria: Text
    rubric: _Rubric | None = None

    def requires(self) -> Requirements:
        """Everything that the prompt contains."""
        return Requirements(needs=frozenset({"arguments", "results", "content"}))

    def prompt_for(self, trajectory: Trajectory) -> str:
        """The prompt with the criteria, the rubric and the run."""
        rubric = f"\n\nScores:\n{self.rubric}" if self.rubric else ""
        data = without_unrecorded(
            agent=trajectory.agent or UNRECORDED,
            input=trajectory.input,
            calls=calls_as_data(trajectory.calls),
            output=trajectory.output,
        )
        return build_prompt(f"{self.prompt or _JUDGE}\n\n{self.criteria}{rubric}", data)


_Compared = Annotated[
    Items[Literal["arguments", "result"]],
    Words("is not a list of arguments and result; write e.g. [arguments]"),
]


_NO_TOOL: Final = "is not a tool's name, or a mapping with one; write e.g. {name: search}"


def _with_name(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(tool.get("name"), str) or not tool["name"]:
        raise own_words(_NO_TOOL)
    return tool


_Tool = Annotated[
    Mapping[str, Any],
    ReadAs(
        one_of(
            {
                TEXT: Annotated[Name, AfterValidator(lambda name: {"name": name})],
                MAPPING: Annotated[dict[str, Any], AfterValidator(_with_name)],
            }
        )
    ),
    Words(_NO_TOOL),
]
_Tools = Annotated[
    Items[_Tool],
    Words("is not a list of tools; write e.g. [search, {name: refund, description: pays back}]"),
]
"""Names, or mappings with a `name` and anything else that describes the tool to a judge."""


_CHOICE: Final = """You judge which tools an agent chose for its task, out of the tools that it had.
1 if it called every tool that the task asked for and no other; 0 if it called none of them; in
between as far as the choice was right. How the tools were called, what came back and how well the
task was done do not count."""


@scorer("tool_correctness")
@frozen_record
class ToolCorrectness(AskingScorer, Matching):
    """Whether the right tools were called, with the right arguments and results where these are
    compared. 1 is best.

    Weight of the alignment / number expected, or by `measure`; range 0-1. Details: as
    `execution_order`. Skipped: something is compared that a same-named call did not record; with
    `available_tools`, the run's input was not recorded.

    With `available_tools` a judge scores how well the tools were chosen for the run's input, and
    the value is the smaller of the alignment and that score; details `alignment` and `selection`. A
    judge that fails leaves the run without a score: `Failed`, with the alignment in the details.

    Attributes:
        match: `exact`, `in_order` or `any_order`.
        compare: a list of `arguments` and `result`.
        arguments: how arguments agree: `exact`, `subset`, `superset`, `overlap`, or a list of
            dotted keys to compare.
        measure: `recall` (/ expected), `precision` (/ made) or `f1`.
        available_tools: the tools that the agent could call: names, or mappings with a `name` and
            e.g. a `description`. A judge then scores the choice of tools.
        judge: the judge of the choice, needed with `available_tools`: see
            [judges.md](../how-to/judges.md).
        prompt: replaces the instruction to the judge.
        sample: with `available_tools`: the share of traces that are scored, chosen by trace id.

    Example:
        {type: tool_correctness, expected: [{name: search, arguments: {q: rates}}], compare:
        [arguments]}

    >>> from otel_eval.testing import call, trajectory
    >>> from otel_eval.scorers import create_scorer
    >>> spec = {"type": "tool_correctness", "expected": ["search"], "measure": "precision"}
    >>> tools = create_scorer(spec)
    >>> tools(trajectory(call("search"), call("open"))).value
    0.5
    """

    expected: CallList | None = None
    match: Match = "any_order"
    compare: _Compared = ()
    arguments: Mode = "overlap"
    measure: Measure = "recall"
    available_tools: _Tools = ()
    judge: JudgeSpec | None = None
    prompt: Text | None = None
    sample: Share = 1.0

    def prepare(self) -> None:
        """Check that there is an expectation, and a judge where one is needed."""
        Matching.prepare(self)
        if self.available_tools and self.judge is None:
            names = redacted_repr([tool["name"] for tool in self.available_tools])
            raise ConfigError(
                f"available_tools: {names} needs a judge; add judge: the name of one of `judges`,"
                " or leave it out"
            )

    @property
    def default_threshold(self) -> float:
        """1, or 0.5 if a judge is asked."""
        return 0.5 if self.available_tools else 1.0

    @property
    def asynchronous(self) -> bool:
        """Whether a judge is asked."""
        return bool(self.available_tools)

    def requires(self) -> Requirements:
        """What is compared, and the run's input if a judge is asked. Expected tools are required,
        available ones are not.
        """
        required, available = (
            Matching.requires(self),
            tuple(tool["name"] for tool in self.available_tools),
        )
        needs = required.needs | ({"content"} if available else set())
        return replace(required, needs=needs, tools=required.tools | ToolNames(forbidden=available))

    @property
    def compared(self) -> Comparison:
        """What `compare` lists."""
        by = self.arguments if "arguments" in self.compare else None
        return Comparison(arguments=by, results="result" in self.compare)

    def prompt_for(self, trajectory: Trajectory) -> str:
        """The prompt with the task, the available tools and the called ones.

        Raises:
            NoScore: the task was not recorded, or the prompt would be too long.
        """
        if trajectory.input is UNRECORDED:
            raise NoScore(Skipped("not recorded: input", reason="not_recorded"))
        called = [call.name for call in trajectory.calls]
        data = {
            "task": trajectory.input,
            "available_tools": list(self.available_tools),
            "called_tools": called,
        }
        return build_prompt(self.prompt or _CHOICE, data)

    async def opinion(self, trajectory: Trajectory) -> Finding | Outcome:
        """Compare the calls, let the judge, if there is one, score the choice of tools, and return
        the smaller value.
        """
        finding = self.find(trajectory)
        if not isinstance(finding, Finding) or self.judge is None:
            return finding
        details = {**finding.details, "alignment": finding.value}
        try:
            choice = await judge_score(
                self.judge, self.prompt_for(trajectory), include_content=self.include_content
            )
        except Exception as error:  # noqa: BLE001
            # a judge from Python may raise anything; that is an outcome
            return failed(error, details)
        explained = f"{finding.explanation}; of the choice of tools {choice.explanation}"
        return Finding(
            min(finding.value, choice.value), explained, {**details, "selection": choice.details}
        )
