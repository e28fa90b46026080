"""The registry of scorers: built-in names, aliases, dotted paths and the entry-point group. Each
name is registered once.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from importlib import import_module
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    NamedTuple,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import TypeAdapter, ValidationError

from otel_eval.errors import ConfigError, did_you_mean, redacted_repr, wrong_keys
from otel_eval.model import Failed, Outcome, Scored, Skipped, Trajectory
from otel_eval.scorers.base_scorer import BaseScorer
from otel_eval.scorers.user_code import describe_import_error

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


GROUP: Final = "otel_eval.scorers"
ALIASES: Final = {
    "tool-call-count": "tool_call_count",
    "tool-call-order": "tool_call_order",
    "tool-call-args": "tool_call_args",
    "tool-call-output": "tool_call_output",
    "trajectory": "trajectory_structure",
}


class ScorerFunction(Protocol):
    """What `@scorer` registers: a function of a trajectory, with keyword parameters if it has
    any.
    """

    def __call__(
        self, trajectory: Trajectory, /, *args: Any, **kwargs: Any
    ) -> Returned | Awaitable[Returned]:
        """Return an outcome, a number in [0, 1] or a bool, or an awaitable of one of these."""
        ...


Returned = Outcome | float | bool
Anything = TypeVar("Anything", bound=ScorerFunction | type)
T = TypeVar("T")

_NEEDS: Final = ("arguments", "results", "content", "spans", "tokens")
# for a scorer that declares no needs
_DEFAULT_NEEDS: Final = ("arguments", "results", "content", "tokens")


class Registration(NamedTuple):
    """A class or function with the arguments of `scorer`."""

    thing: Any
    version: str = "1"
    needs: frozenset[str] = frozenset(_DEFAULT_NEEDS)
    reads_calls: bool = True


# The module of each built-in scorer, which is imported when the scorer is first used: importing all
# of them takes longer than starting with a few.
BUILT_IN: Final[Mapping[str, str]] = {
    name: f"otel_eval.scorers.{module}"
    for module, names in {
        "calls": (
            "execution_order",
            "tool_call_args",
            "tool_call_order",
            "tool_call_output",
            "trajectory_match",
        ),
        "cel": ("expression",),
        "counts": (
            "error_recovery",
            "forbidden_tools",
            "required_tools",
            "step_efficiency",
            "tool_call_count",
            "tool_errors",
        ),
        "dag": ("dag",),
        "judge_scorers": ("answer_accuracy", "llm_judge", "tool_correctness"),
        "pattern": ("trajectory_pattern",),
        "recorded": ("label_distribution", "time_cost", "trajectory_structure"),
        "sequence": ("loop_detection", "precedence", "redundant_calls"),
    }.items()
    for name in names
}
_registered: Final[dict[str, Registration]] = {}


def scorer(
    name: str,
    *,
    version: str = "1",
    needs: Iterable[str] = _DEFAULT_NEEDS,
    reads_calls: bool = True,
) -> Callable[[Anything], Anything]:
    """Register a class or a function as a scorer and return it, a `BaseScorer` with this name as
    its `type`.

    A function takes a trajectory, and keyword parameters if it has any, and returns an outcome, a
    number in [0, 1] or a bool; it may be a coroutine function. If it raises or returns anything
    else, the outcome is `Failed`.

    Args:
        name: the `type` in a specification.
        version: is exported with every score.
        needs: what the scorer reads: any of "arguments", "results", "content", "spans", "tokens".
        reads_calls: whether runs are skipped if some of their tool calls are unknown.

    Raises:
        ValueError: the name is registered already or empty; the version is not a text; a need does
            not exist; the object cannot be called, or is declared to return something else.
            (Parameters of a configuration are checked against simple annotations.)
    """
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"{name!r} is no name for a scorer; write e.g. @scorer('my_metric')")
    if not isinstance(version, str) or not version:
        raise ValueError(f"{name}: version {version!r} is no text; write e.g. version='2'")
    needs = checked_needs(name, needs)

    def register(thing: Anything) -> Anything:
        if _is_taken(name, thing):
            raise ValueError(f"a scorer named {name!r} is registered already; choose another name")
        if not callable(thing):
            raise ValueError(f"{name}: {thing!r} cannot be called; register a function or a class")
        if returned := refused_return(thing):
            raise ValueError(
                f"{name}: is declared to return {returned}; return an outcome, a number in [0, 1]"
                " or a bool"
            )
        if inspect.isclass(thing) and issubclass(thing, BaseScorer):
            thing.type = name
        _registered[name] = Registration(thing, version, needs, reads_calls)
        return thing

    return register


def _is_taken(name: str, thing: object) -> bool:
    """Whether the name is that of another scorer."""
    module = getattr(thing, "__module__", "")
    if name in ALIASES or BUILT_IN.get(name, module) != module:
        return True
    if name not in _registered:
        return False
    # One definition may be run again: a cell of a notebook, or a module that was reloaded.
    before, now = (
        (getattr(owner, "__module__", None), getattr(owner, "__qualname__", None))
        for owner in (_registered[name].thing, thing)
    )
    return before != now or None in now


def _find(name: str) -> Registration | None:
    """What is registered under the name; a built-in scorer is imported. None if nothing is."""
    if name in BUILT_IN and name not in _registered:
        import_module(BUILT_IN[name])
    return _registered.get(name)


def _registration_of(thing: object) -> Registration:
    """The registration of a class or function under any name; one with the defaults if it is not
    registered.
    """
    return next(
        (registration for registration in _registered.values() if registration.thing is thing),
        Registration(thing),
    )


def checked_needs(name: str, needs: Iterable[str]) -> frozenset[str]:
    """Return the needs if all of them exist; a misspelt one would be ignored without an error.

    Raises:
        ValueError: one does not exist, or they are a text.
    """
    if isinstance(needs, str):
        raise ValueError(f"{name}: needs is a text; write needs=[{needs!r}]")
    for need in (listed := list(needs)):
        if need not in _NEEDS:
            raise ValueError(f"{name}: {need!r} is none of the needs; {did_you_mean(need, _NEEDS)}")
    return frozenset(listed)


def entry_points_of(group: str) -> dict[str, list[EntryPoint]]:
    """The entry points of a group by name: one each, unless several packages chose the same
    name.
    """
    # Imported only if other packages may provide a scorer: the import takes longer than that of all
    # scorers.
    from importlib.metadata import entry_points

    by_name: dict[str, list[EntryPoint]] = {}
    for entry_point in entry_points(group=group):
        if all(
            entry_point.value != other.value for other in by_name.setdefault(entry_point.name, [])
        ):
            by_name[entry_point.name].append(entry_point)
    return by_name


def list_scorers() -> list[str]:
    """Return the names of all scorers, sorted: built in, registered, and installed by other
    packages.
    """
    return sorted({*BUILT_IN, *_registered, *entry_points_of(GROUP)})


def get_scorer(name: str) -> Any:
    """Return the class or function that is registered under a name or alias.

    Raises:
        KeyError: no scorer has the name; the message lists all names.
        ConfigError: two packages register the name.
    """
    name = ALIASES.get(name, name)
    registration = _find(name)
    if registration is None:
        installed = entry_points_of(GROUP).get(name)
        if installed is None:
            raise KeyError(f"no scorer named {name!r}; there are {', '.join(list_scorers())}")
        if len(installed) > 1:
            paths = " and ".join(sorted(entry_point.value for entry_point in installed))
            raise ConfigError(
                f"type: two packages register {name!r}, {paths}; remove one, or write its path as"
                " the type"
            )
        thing = installed[0].load()
        # Loading may have registered it by its decorator.
        registration = _registered.setdefault(name, _registration_of(thing))
    return registration.thing


def resolve_type(kind: str) -> tuple[str, Registration]:
    """The canonical name of a `type`, which is a name, an alias or a dotted path, and what is
    registered under it.

    Raises:
        ConfigError: there is no such scorer, or it cannot be imported or called.
    """
    name, quoted = ALIASES.get(kind, kind), redacted_repr(kind)
    if (registration := _find(name)) is not None:
        return name, registration
    installed = entry_points_of(GROUP)
    if name in installed:
        try:
            thing = get_scorer(name)
        except ConfigError:
            raise
        except (Exception, SystemExit) as error:
            cause = describe_import_error(error)
            raise ConfigError(
                f"type: {quoted} cannot be loaded ({cause}); repair or remove its package"
            ) from error
    elif "." in name or ":" in name:
        try:
            thing = import_path(name)
        except ValueError as error:
            raise ConfigError(f"type: {error}") from error.__cause__
    else:
        raise ConfigError(
            f"type: {quoted} is not a scorer;"
            f" {did_you_mean(kind, {*BUILT_IN, *_registered, *installed, *ALIASES})}"
        )
    if not callable(thing):
        problem = f"names a value of type {type(thing).__name__}, no function or class"
        raise ConfigError(
            f"type: {quoted} {problem}; name something that can be called, or repair its package"
        )
    return name, _registration_of(thing)


def import_path(path: str) -> Any:
    """Import what a dotted path `package.module:attribute` or `package.module.attribute` names.

    Raises:
        ValueError: it cannot be imported.
    """
    module, _, attribute = path.partition(":") if ":" in path else path.rpartition(".")
    try:
        thing = import_module(module)
        for part in attribute.split("."):
            thing = getattr(thing, part)
    except (Exception, SystemExit) as error:
        remedy = "write package.module:attribute of something that can be imported"
        raise ValueError(
            f"{redacted_repr(path)} cannot be imported ({describe_import_error(error)}); {remedy}"
        ) from error
    return thing


_OUTCOMES: Final = (Scored, Skipped, Failed, int, float)  # a bool is an int
_AWAITABLE: Final = (Awaitable, Coroutine)
_SIMPLE: Final = (bool, int, float, str, list, dict, NoneType, Any)


def refused_return(thing: object) -> str:
    """The declared return type of a scorer, if it can be neither an outcome, a number nor a bool;
    else "".
    """
    # of a class, its instances'
    called = thing if inspect.isfunction(thing) else getattr(thing, "__call__", None)  # noqa: B004
    declared = _hints(called).get("return", Any)
    return "" if _may_be_outcome(declared) else _type_name(declared)


def instance_of(thing: Callable[..., T], parameters: Mapping[str, Any], refused: str) -> T:
    """Create an instance of a class of another package; `refused` is the beginning of the error if
    the class raises one.

    Raises:
        ConfigError: the class raised an error.
    """
    try:
        return thing(**parameters)
    except ConfigError:
        raise
    except Exception as error:
        cause = f"{type(error).__name__}: {redacted_repr(str(error))}"
        raise ConfigError(f"{refused} ({cause}); see its documentation") from error


def check_parameters(
    thing: Any, parameters: Mapping[str, Any], besides: Iterable[str] = ()
) -> None:
    """Check parameters for a class, or for a function of a trajectory.

    Args:
        besides: further keys that are allowed.

    Raises:
        ConfigError: has a problem for each that is unknown, missing or of another type.
    """
    keywords = _keywords(thing)
    hints = _hints(thing.__init__ if inspect.isclass(thing) else thing)
    keys = (
        [] if keywords is None else wrong_keys(parameters, dict.fromkeys(besides, False) | keywords)
    )
    types = [
        f"{key}: {redacted_repr(value)} is not {_type_name(hints[key])}, its annotation; write a"
        " value of that type"
        for key, value in parameters.items()
        if key in hints and not _has_type(value, hints[key])
    ]
    if keys or types:
        raise ConfigError(*keys, *types)


def _has_type(value: Any, declared: Any) -> bool:
    """Whether a value is of a type; of any, if the annotation is not a simple one."""
    if not _is_simple(declared):
        return True
    try:
        TypeAdapter(declared, config={"strict": True}).validate_python(value)
    except ValidationError:
        return False
    return True


def _is_simple(declared: object) -> bool:
    """Whether an annotation consists of types that JSON has."""
    origin = get_origin(declared)
    if origin in (Union, UnionType, list, dict):
        return all(map(_is_simple, get_args(declared)))
    return origin is Literal or declared in _SIMPLE


def _keywords(thing: Any) -> dict[str, bool] | None:
    """The keyword parameters of a function (after the trajectory) or a class → whether it is
    required; None if it accepts any, or its signature cannot be read.
    """
    try:
        parameters = list(inspect.signature(thing).parameters.values())
    except (TypeError, ValueError):
        return None
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    keywords = parameters if inspect.isclass(thing) else parameters[1:]
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {
        parameter.name: parameter.default is parameter.empty
        for parameter in keywords
        if parameter.kind in named
    }


def _hints(called: Callable[..., Any] | None) -> dict[str, Any]:
    """The annotations of a function; none if they cannot be evaluated."""
    try:
        return get_type_hints(called) if called is not None else {}
    except Exception:  # noqa: BLE001
        # an annotation may name anything, also what is not defined yet
        return {}


def _may_be_outcome(declared: object) -> bool:
    """Whether a value of a declared type may be an outcome, a number or a bool."""
    origin = get_origin(declared)
    if origin in (Union, UnionType):
        return any(map(_may_be_outcome, get_args(declared)))
    if origin in _AWAITABLE:
        return _may_be_outcome(get_args(declared)[-1])
    if origin is Literal:
        return any(isinstance(value, int) for value in get_args(declared))
    kind = origin or declared
    return (
        not isinstance(kind, type)
        or issubclass(kind, _OUTCOMES)
        or kind in (Any, object, *_AWAITABLE)
    )


def _type_name(declared: object) -> str:
    if declared is NoneType:
        return "None"
    return (
        declared.__name__
        if isinstance(declared, type) and get_origin(declared) is None
        else str(declared)
    )
