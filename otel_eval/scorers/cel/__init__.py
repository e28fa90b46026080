"""Compile CEL expressions once, evaluate them on many runs, and provide the scorer `expression`.

The library is Google's `cel-expr-python`, over its C++ implementation. It checks types at compile
time, limits iterations, and matches regular expressions with RE2, in time linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from typing import Annotated, Any, Final

from otel_eval.errors import ConfigError, did_you_mean, nearest, redacted_repr
from otel_eval.model import Failed, Outcome, Skipped, Trajectory
from otel_eval.records import frozen_record
from otel_eval.scorers.base_scorer import Finding, ReferencedScorer, Requirements
from otel_eval.scorers.cel.binding import REASONS, Bindings, fitting
from otel_eval.scorers.cel.vocabulary import (
    TOO_LARGE,
    Expr,
    FieldsRead,
    nodes,
    parse,
    read,
    text_functions,
)
from otel_eval.scorers.outcomes import NoScore, too_large
from otel_eval.scorers.parameters import FullText
from otel_eval.scorers.registry import scorer
from otel_eval.scorers.tool_names import shortened
from otel_eval.scorers.values import text_of
from otel_eval.validation import ReadAs, Words, own_words

_REMEDY: Final = "install it with pip install 'otel-eval[cel]'"
_PROBLEM: Final = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)")
_UNDECLARED: Final = re.compile(r"undeclared reference to '([^']*)'.*")
_TOO_LARGE: Final = re.compile(rf"[A-Z_]+: {TOO_LARGE}: (.*)", re.DOTALL)
_STEPS: Final = "Iteration budget exceeded"
_MOST_STEPS: Final = 10_000  # the evaluator's own limit
_TOO_DEEP: Final = "too many operators in one another; write it in several parts"
_NO_KEY: Final = re.compile(r'.*Key not found in map : "(.*)"', re.DOTALL)
_NO_VALUE: Final = re.compile(r'.*No value with name "(.*)" found in Activation', re.DOTALL)


# their values are Python values already
_SCALARS: Final = frozenset({"BOOL", "INT", "UINT", "DOUBLE", "STRING"})


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled and type-checked expression.

    Attributes:
        source: the source text.
        reading: the variables and fields that it reads.
        returns: CEL's name for the type of its value: `BOOL`, `STRING`, `DYN`, ….
        labels: the labels of task outputs that it reads.
    """

    source: str
    reading: FieldsRead
    returns: str
    labels: frozenset[str]
    type: Any = field(repr=False, compare=False)
    _environment: Any = field(repr=False, compare=False)
    _expression: Any = field(repr=False, compare=False)

    @property
    def as_given(self) -> str:
        """The source text, which stands for the program in a policy."""
        return self.source


class ExpressionEvaluator:
    """Evaluates programs on one run; values that several programs read are converted once."""

    def __init__(self, bound: Bindings) -> None:
        self._bound = bound
        self._plain: Any = None
        self._known: dict[str, Any] = {}
        self._unfit: dict[str, NoScore] = {}

    def bind_label(self, label: str, value: object) -> None:
        """Bind a label to a value for later evaluations."""
        try:
            self._known |= fitting({label: value}, [value])
        except NoScore as unfit:  # raised only for programs that read the label
            self._unfit[label] = unfit

    def of(self, program: Program) -> Any:
        """Return the value, in plain Python types.

        Raises:
            NoScore: skipped, if a value that decides was not recorded or is too large; failed with
                `ExpressionError`, if the expression cannot be applied to what was recorded.
        """
        if program.labels:
            activation = self._labelled_activation(program)
        else:
            if self._plain is None:
                self._plain = program._environment.Activation(self._bound.values)
            activation = self._plain
        try:
            result = program._expression.eval(activation)
            value = result.value() if program.returns in _SCALARS else result.plain_value()
        except RuntimeError as error:
            if _STEPS in str(error):
                raise NoScore(too_large(f"more than {_MOST_STEPS} steps")) from None
            raise NoScore(_invalid(str(error))) from None
        # the value of an error is its message
        if type(value) is str and result.type().name() == "ERROR":
            raise NoScore(self._outcome_of(value, program))
        return value

    def _labelled_activation(self, program: Program) -> Any:
        """Return an activation with only the labels and variables that the program reads, since all
        of them are converted.

        Raises:
            NoScore: the value of such a label does not fit into an expression.
        """
        for label in program.labels & self._unfit.keys():
            raise self._unfit[label]
        names = program.reading.names
        values = {
            name: value
            for name, value in (*self._bound.values.items(), *self._known.items())
            if name in names
        }
        return program._environment.Activation(values)

    def _outcome_of(self, message: str, program: Program) -> Skipped | Failed:
        """The outcome if the evaluation failed with this message."""
        if problem := _TOO_LARGE.fullmatch(message):
            return too_large(problem[1])
        key, variable = _NO_KEY.fullmatch(message), _NO_VALUE.fullmatch(message)
        # Fields that only other programs read are no cause; but the value of a label may stem from
        # such a field.
        reading = self._bound.reading if program.labels else program.reading
        explanation = (
            self._bound.missing(key[1], reading)
            if key
            else self._bound.without(variable[1])
            if variable
            else ""
        )
        reason = REASONS.get(variable[1], "not_recorded") if variable else "not_recorded"
        return Skipped(explanation, reason=reason) if explanation else _invalid(message)


def _invalid(message: str) -> Failed:
    """Return the outcome for an expression that cannot be applied to its input. The message may
    quote content.
    """
    return Failed("ExpressionError", _first_line(message))


def compile_expression(source: str, labels: Mapping[str, Any] | None = None) -> Program:
    """Compile and check an expression.

    Args:
        source: the expression, a text that is not blank.
        labels: further variables with their types (a program's `type`, or None for any type).

    Raises:
        ConfigError: the expression is invalid or reads an unknown field, or CEL is not installed.
    """
    cel = _library()
    # Expressions without labels share an environment, and so the conversion of the values that they
    # read.
    mentioned = {
        label: of
        for label, of in (labels or {}).items()
        if label.isidentifier() and re.search(rf"\b{label}\b", source)
    }
    environment = _environment(cel, mentioned) if mentioned else _plain_environment(cel)
    try:
        expression = environment.compile(source)
    except RuntimeError as error:
        raise ConfigError(*_problems(str(error), [*_VARIABLES, *(labels or ())])) from None
    tree = parse(expression.serialize())
    reading = read(tree)
    _check_patterns(tree, cel)
    returned = expression.return_type()
    named = reading.names.intersection(labels or ())
    return Program(
        source=source,
        reading=reading,
        returns=returned.name(),
        labels=named,
        type=returned,
        _environment=environment,
        _expression=expression,
    )


def _check_patterns(tree: Expr, cel: Any) -> None:
    """Compile the constant patterns of `matches`.

    Raises:
        ConfigError: RE2 does not accept one of them.
    """
    patterns = dict.fromkeys(
        call.parts[-1].name
        for call in nodes(tree)
        if call.kind == "call" and call.name == "matches" and call.parts[-1].kind == "const"
    )
    if not patterns:
        return
    environment = _plain_environment(cel)
    matching = environment.compile("''.matches(reference)")
    problems = []
    for pattern in patterns:
        result = matching.eval(environment.Activation({"reference": pattern}))
        if result.type().name() == "ERROR":
            cause = _first_line(result.value()).rpartition("invalid regular expression: ")[2]
            problems.append(
                f"{redacted_repr(pattern)} is no pattern of RE2 ({cause}); its syntax has no"
                " lookaround and no backreferences"
            )
    if problems:
        raise ConfigError(*problems)


_VARIABLES: Final = ("run", "calls", "reference")
_FUNCTIONS: Final = (
    "size",
    "all",
    "exists",
    "exists_one",
    "filter",
    "map",
    "has",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "int",
    "uint",
    "double",
    "string",
    "bool",
    "bytes",
    "type",
    "timestamp",
    "duration",
    "dyn",
    "split",
    "join",
    "replace",
    "trim",
    "lowerAscii",
)


def _library() -> Any:
    try:
        return import_module("cel_expr_python.cel")
    except ImportError:
        raise ConfigError(
            f"expressions need the extra cel, which is not installed; {_REMEDY}"
        ) from None


@lru_cache(maxsize=1)
def _plain_environment(cel: Any) -> Any:
    return _environment(cel, {})


def _environment(cel: Any, labels: Mapping[str, Any]) -> Any:
    """The variables and functions that expressions have; `labels` are further variables with their
    types.
    """
    record = cel.Type.Map(cel.Type.STRING, cel.Type.DYN)
    variables = {"run": record, "calls": cel.Type.List(record), "reference": cel.Type.DYN}
    further = {label: cel.Type.DYN if of is None else of for label, of in labels.items()}
    return cel.NewEnv(variables=variables | further, extensions=[text_functions(cel)])


def _problems(message: str, variables: list[str]) -> list[str]:
    """Return the errors of the compiler, each in one line with its position."""
    problems = [_complaint(match, variables) for match in _PROBLEM.finditer(message)]
    return list(dict.fromkeys(problems)) or [f"{_first_line(message)}; write it in simpler parts"]


def _complaint(error: re.Match[str], variables: list[str]) -> str:
    """One error of the compiler, with position and remedy."""
    line, column, problem = error.groups()
    problem = problem.removesuffix("[INVALID_ARGUMENT]").strip()
    at = "" if int(line) < 1 else f"column {column}: "
    if int(line) > 1:
        at = f"line {line}, {at}"
    unknown = _UNDECLARED.fullmatch(problem)
    if unknown:
        word = unknown[1].split(".")[0]
        # There are many short function names, so a suggestion must be closer than usual: `string`
        # resembles `nothing`.
        functions = [name for name in _FUNCTIONS if nearest(word, [name], alike=0.7)]
        return f"{at}{unknown[1]!r} is not known; {did_you_mean(word, [*variables, *functions])}"
    if "Exceeded max recursion depth" in problem:
        return _TOO_DEEP
    remedy = (
        "convert one side, e.g. by double()"
        if "no matching overload" in problem
        else "correct the expression"
    )
    return f"{at}{problem[:200]}; {remedy}"


def _first_line(message: str) -> str:
    return " ".join(message.split("\n")[0].split())[:200]


_SCORES: Final = ("BOOL", "INT", "UINT", "DOUBLE", "DYN")
_MOST_SHOWN: Final = 80


def _score_program(source: str) -> Program:
    program = compile_expression(source)
    if program.returns not in _SCORES:
        raise own_words(
            f"is not a score, it gives {program.returns}; compare it with something, or count"
        )
    return program


_ScoreProgram = Annotated[
    Program,
    ReadAs(
        Annotated[FullText, Words('is not an expression; write e.g. "calls.size() <= 3"')],
        _score_program,
    ),
]


@scorer("expression")
@frozen_record
class Expression(ReferencedScorer):
    """The value of an expression over `run` and `calls`. 1 is best, range 0-1.

    The expression is written in CEL, the Common Expression Language. `true` is 1, `false` is 0, a
    number from 0 to 1 is itself; anything else fails. The explanation is the expression and its
    value. Skipped: something was not recorded that decides the value, or the run is too large for
    an expression, or the evaluation takes too many steps (`too_large`). Needs the extra `cel`.
    Variables, functions and limits: [dag.md](dag.md#expressions).

    Attributes:
        expression: the expression.
        reference: what the variable `reference` stands for, see [References](#references).

    Example:
        {type: expression, expression: 'calls.filter(c, c.name == "search").size() <= 3'}

    >>> from otel_eval.scorers import create_scorer
    >>> from otel_eval.testing import call, trajectory
    >>> few = create_scorer(
    ...     {"type": "expression", "expression": "calls.filter(c, c.name == 'search').size() <= 1"}
    ... )
    >>> few(trajectory(call("search"), call("open"))).value
    1.0
    """

    expression: _ScoreProgram

    def requires(self) -> Requirements:
        """Return what the expression reads."""
        reading = self.expression.reading
        return Requirements(
            needs=reading.needs, attributes=reading.attributes, calls="calls" in reading.names
        )

    def prepare(self) -> None:
        """Check that a reference is configured if the expression reads it.

        Raises:
            ConfigError: it is missing.
        """
        if "reference" in self.expression.reading.names and self.reference is None:
            raise ConfigError(
                "reference: missing, and the expression looks at it; name the attribute that"
                " holds it"
            )

    def find(self, trajectory: Trajectory) -> Finding | Outcome:
        """Evaluate the expression on one run."""
        reading, reference = self.expression.reading, self.reference_of(trajectory)
        bindings = Bindings(reading, trajectory, reference)
        value = ExpressionEvaluator(bindings).of(self.expression)
        if not isinstance(value, bool | int | float):
            return Failed(
                "TypeError",
                f"the expression gave a {type(value).__name__}, not a truth value or a number",
            )
        source = shortened(" ".join(self.expression.source.split()), _MOST_SHOWN)
        return Finding(float(value), f"{source} is {text_of(value)}")
