"""The scorers whose value is what a judge says: of an answer, and of a whole run.

Knows what the judge is asked; who it is and how it is asked is `asking`'s and `judging`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from otel_eval.model import UNRECORDED, Failed, Skipped, Trajectory
from otel_eval.scorers.asking import Asking
from otel_eval.scorers.fields import field_of
from otel_eval.scorers.parameters import STRING, described, reads, schema_of, text, wrong
from otel_eval.scorers.prompts import calls_as_data, prompt_of, recorded
from otel_eval.scorers.references import Reference, reference
from otel_eval.scorers.registry import scorer

__all__ = ["AnswerAccuracy", "LlmJudge"]

_COMPARE: Final = """You compare an answer with a reference answer to the same question.
The reference answer is right. Say how far the answer agrees with it in substance: 1 if it says all that the reference
answer says and nothing that contradicts it, 0 if it says none of it or contradicts it, and in between as far as it
agrees. Wording, order, length and style do not count."""

_JUDGE: Final = """You judge what an agent did: what it was asked, which tools it called in which order, what came back,
and what it answered. Judge by these criteria alone:"""


@described(schema_of(reference))
def _answer(key: str, value: Any) -> str | Reference:
    """A name, or where in a dataset the answer is."""
    return reference(key, value) if isinstance(value, Mapping | Reference) else text(key, value)


@scorer("answer_accuracy")
@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerAccuracy(Asking):
    """How far the run's output agrees with a reference answer, in a judge's words. 1 is best, range 0-1.

    `question` and `answer` name attributes or fields of the run's input, `answer` also a record of a dataset; the judge
    sees both and the run's output, and compares the last two. Skipped: question, answer or output was not recorded.

    >>> from otel_eval.testing import trajectory
    >>> async def judge(prompt: str) -> str:
    ...     return '{"score": 0.5, "explanation": "half of it"}'
    >>> asked = trajectory(input={"question": "Where?", "answer": "Rome, in May"}, output="In Rome.")
    >>> AnswerAccuracy(judge=judge)(asked).value
    0.5
    """

    type: ClassVar[str] = "answer_accuracy"

    question: str = field(default="question", metadata=reads(text))
    answer: str | Reference = field(default="answer", metadata=reads(_answer))

    @property
    def reads_calls(self) -> bool:
        """It does not."""
        return False

    @property
    def needs(self) -> frozenset[str]:
        """The run's input and output."""
        return frozenset({"content"})

    @property
    def asked(self) -> frozenset[str]:
        """The attributes that may hold question and answer."""
        return frozenset({self.question, self.answer.key if isinstance(self.answer, Reference) else self.answer})

    def prompt_for(self, trajectory: Trajectory) -> str | Skipped | Failed:
        """The question, the reference answer and the answer."""
        known = self.answer.of(trajectory) if isinstance(self.answer, Reference) else None
        if isinstance(known, Skipped | Failed):
            return known
        data = {
            "question": field_of(trajectory, self.question, within=("input",)),
            "reference_answer": field_of(trajectory, self.answer, within=("input",)) if isinstance(self.answer, str) else known,
            "answer": trajectory.output,
        }
        names = (self.question, self.answer if isinstance(self.answer, str) else self.answer.field, "output")
        missing = [name for name, value in zip(names, data.values(), strict=True) if value is UNRECORDED or value is None]
        if missing:
            return Skipped(f"not recorded: {', '.join(missing)}", reason="not_recorded")
        return prompt_of(self.prompt or _COMPARE, data)


@described({"anyOf": [STRING, {"type": "object", "minProperties": 1}]})
def _rubric(key: str, value: Any) -> str:
    """A text, or scores from 0 to 1 and what each stands for, as one text."""
    if not isinstance(value, Mapping):
        return text(key, value)
    if not value or not all(_is_share(score) and isinstance(meaning, str) for score, meaning in value.items()):
        raise wrong(key, value, "a text, or scores from 0 to 1 with a text each", f"write e.g. {key}: {{0: rude, 1: polite}}")
    return "\n".join(f"{score:g}: {meaning.strip()}" for score, meaning in sorted(value.items()))


def _is_share(score: Any) -> bool:
    return isinstance(score, int | float) and not isinstance(score, bool) and 0 <= score <= 1


@scorer("llm_judge")
@dataclass(frozen=True, slots=True, kw_only=True)
class LlmJudge(Asking):
    """What a judge makes of the whole run: its input, its calls with arguments and results, its output. 1 is best.

    `criteria` say what counts, `rubric` which score stands for what. Range 0-1. Skipped: the run is longer than a judge
    can be asked to read.

    >>> from otel_eval.testing import call, trajectory
    >>> async def judge(prompt: str) -> str:
    ...     return '{"score": 1, "explanation": "it looked before it answered"}'
    >>> LlmJudge(judge=judge, criteria="It looks things up before it answers.")(trajectory(call("search"))).value
    1.0
    """

    type: ClassVar[str] = "llm_judge"

    criteria: str = field(metadata=reads(text))
    rubric: str | None = field(default=None, metadata=reads(_rubric))

    @property
    def needs(self) -> frozenset[str]:
        """All that is shown."""
        return frozenset({"arguments", "results", "content"})

    def prompt_for(self, trajectory: Trajectory) -> str | Skipped:
        """The criteria, the rubric and the run."""
        rubric = f"\n\nScores:\n{self.rubric}" if self.rubric else ""
        data = recorded(
            agent=trajectory.agent or UNRECORDED,
            input=trajectory.input,
            calls=calls_as_data(trajectory.calls),
            output=trajectory.output,
        )
        return prompt_of(f"{self.prompt or _JUDGE}\n\n{self.criteria}{rubric}", data)
