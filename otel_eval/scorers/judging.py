"""What a judge is to a scorer: something to ask in words, whose answer is checked before it counts.

Knows prompts, answers and the forms a judge may be given in; knows no client, no network and no clock. What an
endpoint or a name stands for is told from above.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import Any, Final, Protocol, cast, runtime_checkable

from otel_eval.errors import ConfigError, OtelEvalError
from otel_eval.scorers.coroutines import is_awaited
from otel_eval.scorers.parameters import did_you_mean, redacted_repr, wrong
from otel_eval.scorers.registry import imported

__all__ = ["Judge", "JudgeError", "Structured", "ask", "named", "reply_of", "resolve", "trusting"]

Judge = Callable[[str], Awaitable[str]]
"""Takes a prompt and answers it."""

_EXAMPLE: Final = "{base_url: https://models.example/v1, model: name, api_key_env: JUDGE_API_KEY}"
_LONGEST_NAME: Final = 40  # that a remedy repeats
_CLIENTS: Final = "otel_eval.app.judges"  # named, not imported: it is loaded only where an endpoint is a judge


@runtime_checkable
class Structured(Protocol):
    """A judge that can be held to the form of its answer."""

    async def structured(self, prompt: str, schema: Mapping[str, Any]) -> str:
        """The answer as JSON of this schema."""
        ...


class JudgeError(OtelEvalError):
    """A judge gave no answer that can be used.

    Attributes:
        kind: a word that says why and quotes nothing: the error type of the outcome.
        status: the HTTP status of the endpoint's answer, if it refused.
    """

    def __init__(self, kind: str, message: str = "", status: int | None = None) -> None:
        super().__init__(message or kind)
        self.kind, self.status = kind, status


def _nowhere(name: str, where: str) -> Judge:
    raise ConfigError(
        f"{where}: {redacted_repr(name)} is a name of `judges`, and there is no configuration here; write {where}: {_EXAMPLE}"
    )


_by_name: ContextVar[Callable[[str, str], Judge]] = ContextVar("otel_eval_judges", default=_nowhere)


@contextmanager
def named(judges: Mapping[str, Judge]) -> Iterator[None]:
    """Within, these are the judges that a name may stand for."""

    def find(name: str, where: str) -> Judge:
        if name in judges:
            return judges[name]
        remedy = did_you_mean(name, [*judges]) if judges else f"write judges: {{{name[:_LONGEST_NAME]}: {_EXAMPLE}}} at the top"
        raise ConfigError(f"{where}: {redacted_repr(name)} is not one of the judges; {remedy}")

    token = _by_name.set(find)
    try:
        yield
    finally:
        _by_name.reset(token)


@contextmanager
def trusting() -> Iterator[None]:
    """Within, any name may stand for a judge, unless it is known which may; nobody may be asked."""

    async def somebody(prompt: str) -> str:
        raise JudgeError("judge_unknown", "the name of a judge means something only in a whole configuration")

    token = _by_name.set((lambda name, where: somebody) if _by_name.get() is _nowhere else _by_name.get())
    try:
        yield
    finally:
        _by_name.reset(token)


def resolve(spec: object, where: str) -> Judge:
    """The judge that is meant.

    Args:
        spec: a coroutine function that takes a prompt and returns the answer, or its path `package.module:function`, a
            mapping that describes an endpoint, or a name in the configuration's `judges`.
        where: the key it stands under, for errors.

    Raises:
        ConfigError: it is none of these, or cannot be used.
    """
    if callable(spec):
        if is_awaited(spec):
            return cast(Judge, spec)
        raise wrong(where, spec, "a coroutine function", "write async def judge(prompt: str) -> str")
    if isinstance(spec, str) and ":" in spec:
        return resolve(imported(where, spec), where)
    if isinstance(spec, str) and spec:
        return _by_name.get()(spec, where)
    if isinstance(spec, Mapping):
        opened: Judge = import_module(_CLIENTS).opened(spec, where)
        return opened
    raise wrong(where, spec, "a judge", f"write the name of one of `judges`, or {where}: {_EXAMPLE}")


async def ask(judge: Judge, prompt: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The judge's answer, checked against the schema.

    Args:
        judge: held to the schema beforehand as well, if it is `Structured`.
        schema: JSON Schema of an object; see `reply_of` for what of it is checked.

    Raises:
        JudgeError: there is no answer, or it is not what was asked for.
    """
    answer = await (judge.structured(prompt, schema) if isinstance(judge, Structured) else judge(prompt))
    return reply_of(answer, schema)


def reply_of(answer: object, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The object that an answer is: JSON with every property required, of its `type` or `anyOf`, in its `enum`, in its range.

    Raises:
        JudgeError: `judge_malformed` or `judge_out_of_range`; its message quotes nothing of the answer.

    >>> reply_of('{"score": 0.5}', {"properties": {"score": {"type": "number", "minimum": 0, "maximum": 1}}})
    {'score': 0.5}
    """
    if not isinstance(answer, str):
        raise JudgeError("judge_malformed", f"the judge returned a {type(answer).__name__}, not text")
    try:
        reply = json.loads(answer, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise JudgeError("judge_malformed", "the judge's answer is not JSON") from None
    if not isinstance(reply, dict):
        raise JudgeError("judge_malformed", f"the judge's answer is a JSON {type(reply).__name__}, not an object")
    for key, rule in schema["properties"].items():
        _check(key, reply, rule)
    return reply


_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "number": (int, float),
    "string": (str,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def _check(key: str, reply: Mapping[str, Any], rule: Mapping[str, Any]) -> None:
    if key not in reply:
        raise JudgeError("judge_malformed", f"the judge's answer has no {key}")
    value, kind = reply[key], rule.get("type")
    if not _fits(value, rule):
        raise JudgeError("judge_malformed", f"the judge's {key} is not {f'a {kind}' if kind else 'of the form asked for'}")
    if "enum" in rule and not any(type(value) is type(each) and value == each for each in rule["enum"]):
        raise JudgeError("judge_out_of_range", f"the judge's {key} is not one of those allowed")
    if kind == "number" and not rule.get("minimum", value) <= value <= rule.get("maximum", value):
        raise JudgeError("judge_out_of_range", f"the judge's {key} is not between {rule['minimum']} and {rule['maximum']}")


def _fits(value: Any, rule: Mapping[str, Any]) -> bool:
    """Whether the value is of the rule's type, and all that a list holds of that of its items."""
    if "anyOf" in rule:
        return any(_fits(value, each) for each in rule["anyOf"])
    kind = rule.get("type")
    if kind is None:
        return True
    fits = isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
    return fits and (kind != "array" or all(_fits(each, rule.get("items", {})) for each in value))


def _no_number(word: str) -> Any:
    raise ValueError(word)  # NaN and infinities are no JSON
