"""What can be configured as a judge, and which answers are accepted."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import pytest

from otel_eval.errors import ConfigError
from otel_eval.scorers import create_scorer
from otel_eval.scorers.judge import (
    JudgeError,
    any_judge_name,
    ask,
    named_judges,
    parse_reply,
    resolve_judge,
)

SCORE = {
    "properties": {
        "score": {"type": "number", "minimum": 0, "maximum": 1},
        "explanation": {"type": "string"},
    },
}
VERDICT = {"properties": {"verdict": {"type": "string", "enum": ["yes", "maybe"]}}}


async def judge(prompt: str) -> str:
    return prompt


class Held:
    """A judge that receives the JSON Schema of its answer, as an endpoint does."""

    async def __call__(self, prompt: str) -> str:
        raise AssertionError("it was not told the schema")

    async def structured(self, prompt: str, schema: Any) -> str:
        return '{"score": 1, "explanation": "' + ",".join(schema["properties"]) + '"}'


def judged_by(spec: Any) -> Any:
    """A scorer with this judge."""
    return create_scorer({"type": "llm_judge", "criteria": "It is polite.", "judge": spec})


@pytest.mark.parametrize("spec", [judge, functools.partial(judge), Held()])
def test_anything_that_answers_a_prompt_later_is_a_judge(spec: Any):
    """It is a coroutine function, or an object whose `__call__` is one."""
    assert resolve_judge(spec) is spec


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (None, "judge: null (no value) is not a judge; write the name"),
        (3, "judge: 3 is not a judge"),
        ("", "judge: '' is not a judge"),
        (len, "is not a coroutine function; write async def"),
        ("main", "judge: 'main' is a name of `judges`, and there is no configuration here"),
    ],
)
def test_an_invalid_judge_is_refused(spec: Any, said: str):
    """The error is one line with the remedy."""
    with pytest.raises(ConfigError) as refused:
        judged_by(spec)
    assert said in str(refused.value)


def test_a_name_is_that_of_a_configured_judge():
    """A name is resolved only within its configuration; for a misspelt one a name is suggested."""
    with named_judges({"main": judge}):
        assert resolve_judge("main") is judge
        with pytest.raises(
            ConfigError, match="'mian' is not one of the judges; did you mean 'main'"
        ):
            judged_by("mian")
    with named_judges({}), pytest.raises(ConfigError, match=r"write judges: \{main: "):
        judged_by("main")


@pytest.mark.parametrize(("length", "shown"), [(40, 40), (41, 40)])
def test_a_remedy_repeats_forty_characters_of_a_name(length: int, shown: int):
    """If no judges are configured, the error shows how to configure one."""
    with named_judges({}), pytest.raises(ConfigError) as refused:
        judged_by("x" * length)
    assert f"write judges: {{{'x' * shown}: {{base_url" in str(refused.value)


def test_a_part_of_a_configuration_may_name_any_judge_but_asks_none():
    """If the names are known, only they are accepted."""
    with any_judge_name(), pytest.raises(JudgeError) as refused:
        asyncio.run(ask(resolve_judge("main"), "?", SCORE))
    assert refused.value.kind == "judge_unknown"
    with named_judges({"main": judge}), any_judge_name():
        assert resolve_judge("main") is judge
        with pytest.raises(ConfigError, match="'mian' is not one of the judges"):
            judged_by("mian")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("[]", "the judge's answer is a JSON list, not an object"),
        ("{}", "the judge's answer has no score of the form asked for"),
        ('{"score": "1", "plan": ""}', "the judge's answer has no score of the form asked for"),
        ('{"score": 2, "plan": ""}', "the judge's score is not one of those allowed"),
        ('{"score": 1, "plan": 3}', "the judge's answer has no plan of the form asked for"),
        ('{"score": 1, "plan": ["a", 3]}', "the judge's answer has no plan of the form asked for"),
    ],
)
def test_an_invalid_answer_is_reported_with_its_property(answer: str, said: str):
    """The error names the property; as `plan` a text or a list of texts is accepted."""
    text = {"type": "string"}
    schema = {
        "properties": {
            **SCORE["properties"],
            "plan": {"anyOf": [text, {"type": "array", "items": text}]},
        }
    }
    del schema["properties"]["explanation"]
    with pytest.raises(JudgeError) as refused:
        parse_reply(answer, schema)
    assert str(refused.value) == said
    assert parse_reply('{"score": 1, "plan": ["a"]}', schema)["plan"] == ["a"]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (None, "judge_malformed"),
        ({"score": 1}, "judge_malformed"),
        ("", "judge_malformed"),
        ("The run deserves 1.0", "judge_malformed"),
        ("1", "judge_malformed"),
        ("[" * 100_000, "judge_malformed"),
        ('{"score": 1}', "judge_malformed"),
        ('{"score": "1", "explanation": ""}', "judge_malformed"),
        ('{"score": true, "explanation": ""}', "judge_malformed"),
        ('{"score": null, "explanation": ""}', "judge_malformed"),
        ('{"score": 1, "explanation": 1}', "judge_malformed"),
        ('{"score": NaN, "explanation": ""}', "judge_malformed"),
        ('{"score": -Infinity, "explanation": ""}', "judge_malformed"),
        ('{"score": 0, "explanation": "", "score": 1}', "judge_malformed"),
        ('{"score": 1e999, "explanation": ""}', "judge_out_of_range"),
        ('{"score": 1.01, "explanation": ""}', "judge_out_of_range"),
        ('{"score": -0.01, "explanation": ""}', "judge_out_of_range"),
    ],
)
def test_an_answer_that_is_not_what_was_asked_for_is_none(answer: Any, kind: str):
    """The error quotes nothing of the answer."""
    with pytest.raises(JudgeError) as refused:
        parse_reply(answer, SCORE)
    assert refused.value.kind == kind
    assert "deserves" not in str(refused.value)


@pytest.mark.parametrize("score", ["0", "1", "0.25", "1.0"])
def test_an_answer_in_range_is_taken(score: str):
    """The score may be an int or a float; further keys of the object are ignored."""
    assert parse_reply(f'{{"score": {score}, "explanation": "x", "more": [1]}}', SCORE)[
        "score"
    ] == float(score)


@pytest.mark.parametrize(
    ("verdict", "kind"),
    [('"no"', "judge_out_of_range"), ("true", "judge_malformed"), ("null", "judge_malformed")],
)
def test_a_verdict_is_one_of_those_allowed_and_of_its_type(verdict: str, kind: str):
    """A verdict is one of the texts in `enum`."""
    with pytest.raises(JudgeError) as refused:
        parse_reply(f'{{"verdict": {verdict}}}', VERDICT)
    assert refused.value.kind == kind
    assert parse_reply('{"verdict": "yes"}', VERDICT) == {"verdict": "yes"}


def test_a_structured_judge_gets_the_schema():
    """Other judges get only the prompt."""
    assert asyncio.run(ask(Held(), "?", SCORE)) == {"score": 1, "explanation": "score,explanation"}
    assert asyncio.run(ask(judge, '{"score": 0, "explanation": ""}', SCORE))["score"] == 0
