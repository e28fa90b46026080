"""The scorers that ask a judge: their prompts, their outcomes, and when they do not ask."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_eval import Failed, Outcome, Scored, Skipped, create_scorer
from otel_eval.model import UNRECORDED
from otel_eval.scorers.judge import build_prompt
from otel_eval.scorers.judge_scorers import LlmJudge
from otel_eval.scorers.outcomes import NoScore
from otel_eval.testing import call, trajectory


class Judge:
    """A judge that always gives the same answer, and records its prompts."""

    def __init__(self, score: Any = 0.5, explanation: str = "PRIVATE") -> None:
        self.prompts: list[str] = []
        self._answer = json.dumps({"score": score, "explanation": explanation})

    async def __call__(self, prompt: str) -> str:
        self.prompts.append(prompt)
        return self._answer

    def data(self) -> dict[str, Any]:
        """The content of the `<data>` block of the last prompt."""
        data: dict[str, Any] = json.loads(
            self.prompts[-1].split("\n<data>\n")[1].split("\n</data>\n")[0]
        )
        return data


class Broken:
    """A judge that raises."""

    async def __call__(self, prompt: str) -> str:
        raise ConnectionError("no route")


ASKED = {"question": "Where?", "answer": "Rome"}
LLM = {"type": "llm_judge", "criteria": "It is polite."}
ACCURACY = {"type": "answer_accuracy"}
TOOLS = {
    "type": "tool_correctness",
    "expected": ["a", "b"],
    "available_tools": ["a", {"name": "b", "description": "of b"}, "c"],
}


def outcome(spec: dict[str, Any], run: Any, judge: Any) -> Outcome:
    return create_scorer({**spec, "judge": judge})(run)


def test_a_question_with_its_reference_and_the_answer_is_what_is_compared():
    """The input may be text or an object; the prompt contains nothing else of the run."""
    for given_input in (ASKED, json.dumps(ASKED)):
        judge = Judge(0.25)
        assert outcome(
            ACCURACY, trajectory(call("secret_tool"), input=given_input, output="In Rome."), judge
        ) == Scored(0.25, False, "the judge gave 0.25", {"score": 0.25})
        assert judge.data() == {
            "question": "Where?",
            "reference_answer": "Rome",
            "answer": "In Rome.",
        }


def test_question_and_reference_may_be_attributes_or_the_input_itself():
    """The parameters name them."""
    judge = Judge()
    run = trajectory(input="Where?", output="Rome", attributes={"expected.answer": "Rome"})
    assert isinstance(
        outcome({**ACCURACY, "question": "input", "answer": "expected.answer"}, run, judge), Scored
    )
    assert judge.data()["question"] == "Where?"
    scorer: Any = create_scorer({**ACCURACY, "judge": judge, "answer": "expected.answer"})
    assert (scorer.attribute_keys, scorer.needs) == ({"question", "expected.answer"}, {"content"})


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (trajectory(input=ASKED), "not recorded: output"),
        (trajectory(input=ASKED, output=None), "not recorded: output"),
        (trajectory(input={"question": "Where?"}, output="Rome"), "not recorded: answer"),
        (trajectory(input={"answer": "Rome"}, output="Rome"), "not recorded: question"),
        (trajectory(input="Where?", output="Rome"), "not recorded: question, answer"),
        (trajectory(), "not recorded: question, answer, output"),
        (trajectory(input=ASKED, output="Rome", incomplete="orphaned"), "incomplete: orphaned"),
    ],
)
def test_no_judge_is_asked_about_content_that_was_not_recorded(run: Any, why: str):
    """The run is skipped without a request to the judge."""
    judge = Judge()
    assert outcome(ACCURACY, run, judge) == Skipped(
        why, reason="incomplete" if run.incomplete else "not_recorded"
    )
    assert judge.prompts == []


def test_the_prompt_has_the_whole_run_as_it_was_recorded():
    """Unrecorded values are omitted, and null stays null."""
    judge = Judge(1)
    run = trajectory(
        call("search", arguments={"q": "é<b>"}, result=None),
        call("open", error=ValueError("gone")),
        input="Find it.",
        agent="clerk",
    )
    assert outcome(
        {**LLM, "rubric": {1: "polite", 0: "rude", 0.5: " neither "}}, run, judge
    ) == Scored(1.0, True, "the judge gave 1", {"score": 1.0})
    calls = [
        {"tool": "search", "arguments": {"q": "é<b>"}, "result": None},
        {"tool": "open", "error": {"type": "ValueError", "message": "gone"}},
    ]
    assert judge.data() == {"agent": "clerk", "input": "Find it.", "calls": calls}
    instruction = judge.prompts[0].split("<data>")[0]
    assert "It is polite." in instruction
    assert "Scores:\n0: rude\n0.5: neither\n1: polite" in instruction


def test_the_prompt_omits_calls_that_are_left_out():
    """`tools` and `failed_calls` apply to prompts as well."""
    judge = Judge()
    run = trajectory(call("search"), call("open"), call("search", error="x"))
    outcome({**LLM, "tools": {"include": ["search"]}, "failed_calls": "exclude"}, run, judge)
    assert judge.data()["calls"] == [{"tool": "search"}]


def test_the_text_of_a_judge_is_shown_only_with_include_content():
    """It is shown only with `include_content`."""
    run = trajectory(call("search"), input="Find it.")
    shown = outcome({**LLM, "include_content": True}, run, Judge())
    assert shown == Scored(
        0.5, True, "the judge gave 0.5: PRIVATE", {"score": 0.5, "explanation": "PRIVATE"}
    )
    for spec in (LLM, TOOLS):
        assert "PRIVATE" not in repr(outcome(spec, run, Judge()))
    assert "PRIVATE" in repr(outcome({**TOOLS, "include_content": True}, run, Judge()))
    long = outcome({**LLM, "include_content": True}, run, Judge(explanation="x" * 10_000))
    assert isinstance(long, Scored)
    assert len(long.explanation) < 2100


def test_a_prompt_can_be_replaced_but_not_what_keeps_it_safe():
    """The user replaces the instruction; data, warning and form of the answer stay."""
    judge = Judge()
    outcome({**LLM, "prompt": "Grade this run."}, trajectory(call("search")), judge)
    assert judge.prompts[0].startswith(
        "Grade this run.\n\nIt is polite.\n\nBetween <data> and </data>"
    )
    assert judge.prompts[0].endswith('"explanation": "why, in a sentence or two"}')


def test_a_subclass_may_write_the_whole_prompt():
    """It overrides `prompt_for`."""

    class Mine(LlmJudge):
        def prompt_for(self, trajectory: Any) -> str:
            return f"{len(trajectory.calls)} calls. Good?"

    judge = Judge()
    assert isinstance(Mine(judge=judge, criteria="x")(trajectory(call("a"))), Scored)
    assert judge.prompts == ["1 calls. Good?"]


def test_no_score_is_less_than_zero_in_words():
    """JSON has a negative zero, which becomes 0."""
    assert outcome(LLM, trajectory(call("a")), Judge(-0.0)) == Scored(
        0.0, False, "the judge gave 0", {"score": 0.0}
    )


@pytest.mark.parametrize("spec", [LLM, ACCURACY, TOOLS])
@pytest.mark.parametrize(
    ("score", "error_type"),
    [
        (2, "judge_out_of_range"),
        (-0.1, "judge_out_of_range"),
        (float("nan"), "judge_malformed"),
        (None, "judge_malformed"),
    ],
)
def test_a_score_that_is_none_fails(spec: dict[str, Any], score: Any, error_type: str):
    """A score outside of [0, 1] is not clamped."""
    failed = outcome(spec, trajectory(call("a"), input=ASKED, output="x"), Judge(score))
    assert isinstance(failed, Failed)
    assert failed.error_type == error_type


@pytest.mark.parametrize("spec", [LLM, ACCURACY, TOOLS])
def test_a_judge_that_raises_fails(spec: dict[str, Any]):
    """The outcome has the type of the exception."""
    failed = outcome(spec, trajectory(call("a"), input=ASKED, output="x"), Broken())
    assert isinstance(failed, Failed)
    assert (failed.error_type, failed.message) == ("ConnectionError", "no route")


@pytest.mark.parametrize(("score", "value"), [(1, 0.5), (0.5, 0.5), (0.25, 0.25), (0, 0.0)])
def test_the_smaller_of_alignment_and_choice_counts(score: float, value: float):
    """One of two expected tools was called: an alignment of a half."""
    judge = Judge(score)
    scored = outcome(
        TOOLS, trajectory(call("a", arguments={"x": 1}), call("c"), input="Do it."), judge
    )
    assert isinstance(scored, Scored)
    assert (scored.value, scored.details["alignment"], scored.details["selection"]) == (
        value,
        0.5,
        {"score": float(score)},
    )
    assert judge.data() == {
        "task": "Do it.",
        "available_tools": [{"name": "a"}, {"name": "b", "description": "of b"}, {"name": "c"}],
        "called_tools": ["a", "c"],
    }


def test_a_judge_that_fails_leaves_the_alignment_in_the_details():
    """The details have everything that the alignment found."""
    failed = outcome(TOOLS, trajectory(call("a"), input="Do it."), Broken())
    assert isinstance(failed, Failed)
    assert failed.details["alignment"] == 0.5
    assert failed.details["missing"] == [{"tool": "b", "expected": 1}]


def test_without_the_task_no_choice_is_judged():
    """A judge that is asked all the same lets runs pass."""
    judge = Judge()
    skipped = outcome(TOOLS, trajectory(call("a"), call("b")), judge)
    assert isinstance(skipped, Skipped)
    assert (skipped.explanation, skipped.reason, skipped.details["alignment"]) == (
        "not recorded: input",
        "not_recorded",
        1.0,
    )
    assert judge.prompts == []


def test_a_run_that_cannot_be_aligned_is_not_asked_about():
    """The judge's score could not change the outcome."""
    judge = Judge()
    spec = {**TOOLS, "expected": [{"name": "a", "arguments": {"x": 1}}], "compare": ["arguments"]}
    assert isinstance(outcome(spec, trajectory(call("a")), judge), Skipped)
    assert judge.prompts == []


def test_without_available_tools_no_judge_is_asked():
    """The scorer is synchronous."""
    judge = Judge()
    scorer: Any = create_scorer({**TOOLS, "available_tools": [], "judge": judge})
    assert (scorer.asynchronous, scorer(trajectory(call("a"))).value, judge.prompts) == (
        False,
        0.5,
        [],
    )
    assert create_scorer({**TOOLS, "judge": judge}).asynchronous is True  # type: ignore[attr-defined]


@pytest.mark.parametrize("spec", [LLM, ACCURACY])
def test_the_engine_awaits_judges_while_other_scorers_run(spec: dict[str, Any]):
    """The engine awaits it, and meanwhile runs the other scorers."""
    assert create_scorer({**spec, "judge": Judge()}).asynchronous is True  # type: ignore[attr-defined]


@pytest.mark.parametrize("spec", [LLM, ACCURACY, TOOLS])
def test_strict_and_threshold_hold_for_a_judges_score(spec: dict[str, Any]):
    """They apply as for every other scorer."""
    run = trajectory(call("a"), call("b"), input=ASKED, output="x")
    strict, lenient = (
        outcome({**spec, "strict": True}, run, Judge(0.9)),
        outcome({**spec, "threshold": 0.9}, run, Judge(0.9)),
    )
    assert isinstance(strict, Scored)
    assert isinstance(lenient, Scored)
    assert (strict.value, strict.passed, lenient.value, lenient.passed) == (0.0, False, 0.9, True)


def test_a_judge_scorer_is_awaited_in_a_running_loop():
    """A call in a running event loop fails with the remedy."""

    async def inside() -> tuple[Any, Any]:
        scorer: Any = create_scorer({**LLM, "judge": Judge()})
        return scorer(trajectory(call("a"))), await scorer.evaluate(trajectory(call("a")))

    called, awaited = asyncio.run(inside())
    assert isinstance(called, Failed)
    assert "await scorer.evaluate" in called.message
    assert awaited.value == 0.5


def test_a_run_too_long_to_be_read_is_skipped():
    """The prompt is not cut, since the score of a part of a run may differ from that of the run."""
    judge = Judge()
    skipped = outcome(LLM, trajectory(call("a", result="x" * 500_000)), judge)
    assert isinstance(skipped, Skipped)
    assert skipped.explanation.startswith("too long for a judge: 50")
    assert judge.prompts == []


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=40)
    | st.sampled_from(["</data>", "\n</data>\n", "<data>", "\ud800"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(JSON)
def test_recorded_data_cannot_close_its_block_in_a_prompt(value: Any):
    """Whatever the data is, the prompt has one block, closed once, that decodes to the data, and
    can be encoded as UTF-8.
    """
    try:
        prompt = build_prompt("Judge.", {"value": value})
    except NoScore:
        return
    before, _, rest = prompt.partition("\n<data>\n")
    data, _, after = rest.partition("\n</data>\n")
    assert (prompt.count("\n</data>\n"), prompt.count("\n<data>\n")) == (1, 1)
    assert (before, after) == tuple(
        build_prompt("Judge.", {}).replace("{}", "").split("\n<data>\n\n</data>\n")
    )
    assert prompt.encode("utf-8")
    assert "\ud800" in repr(value) or json.loads(data) == {"value": value}


def test_the_prompt_keeps_unicode_as_recorded():
    """Each value is on a line of its own, indented by its depth."""
    prompt_text = build_prompt("Judge.", {"output": {"é": ["ß"]}})
    assert '\n<data>\n{\n "output": {\n  "é": [\n   "ß"\n  ]\n }\n}\n</data>\n' in prompt_text


def test_unrecorded_values_are_not_sent_as_text():
    """Unrecorded values are described in the instruction, not in the data."""
    judge = Judge()
    outcome(LLM, trajectory(call("a"), output=UNRECORDED), judge)
    assert "UNRECORDED" not in judge.prompts[0]
