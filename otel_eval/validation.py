"""Validation of what users write, in configurations, specifications of scorers and references of
runs: pydantic checks values, unknown keys are errors, and each problem is one line.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from dataclasses import Field as DataclassField
from functools import cache, reduce
from itertools import pairwise
from operator import or_
from typing import Annotated, Any, Final, TypeVar, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SerializationInfo,
    Tag,
    TypeAdapter,
    ValidationError,
    ValidatorFunctionWrapHandler,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, PydanticKnownError
from pydantic_core.core_schema import (
    definitions_schema,
    no_info_after_validator_function,
    no_info_plain_validator_function,
    no_info_wrap_validator_function,
    plain_serializer_function_ser_schema,
)

from otel_eval.errors import ConfigError, redacted_repr, wrong_keys

T = TypeVar("T")


def tag(name: str) -> str:
    """The tag of a form in which a value may be written. Pydantic adds it to paths, and messages
    leave it out: no key begins with this character.
    """
    return f"\0{name}"


LIST: Final = tag("list")
MAPPING: Final = tag("mapping")
TEXT: Final = tag("text")
OTHER: Final = tag("other")
# their values are never shown
_SECRET: Final = frozenset({"headers", "sasl", "username", "password"})
# What is wrong with a value and what to write instead, by pydantic's type of error; names in braces
# are values of its context.
_LIST_WORDS: Final = "is not a list; write one, in brackets or with `- ` before each entry"
_MAPPING_WORDS: Final = "is not a mapping; write keys with values, e.g. {{key: value}}"
_CHOICE_WORDS: Final = "is invalid; write {expected}"
_BOOL_WORDS: Final = "is not true or false; write one of them, without quotes"
_DEEP_WORDS: Final = "is nested too deeply; write it flatter"
_WORDS: Final = {
    "list_type": _LIST_WORDS,
    "tuple_type": _LIST_WORDS,
    "part_type": "is not a mapping; its keys are {keys}",
    "empty_list": "is empty; name at least one",
    "own_words": "{words}",
    "dict_type": _MAPPING_WORDS,
    "mapping_type": _MAPPING_WORDS,
    "string_type": "is not text; write text, in quotes where it looks like a number",
    "string_unicode": "has half of a surrogate pair in it; write letters of Unicode",
    "string_too_short": "is empty; write at least one character",
    "string_too_long": "is longer than {max_length} characters; shorten it",
    "recursion_loop": _DEEP_WORDS,
    "recursion_depth_exceeded": _DEEP_WORDS,
    "string_pattern_mismatch": "does not match {pattern}; write text that does",
    "int_type": "is not a whole number; write digits, without quotes",
    "float_type": "is not a number; write digits, without quotes",
    "finite_number": "is not a number; write digits, without quotes",
    "bool_type": _BOOL_WORDS,
    "bool_parsing": _BOOL_WORDS,
    "literal_error": _CHOICE_WORDS,
    "enum": _CHOICE_WORDS,
    "greater_than": "is not greater than {gt:g}; raise it",
    "greater_than_equal": "is less than {ge:g}; raise it",
    "less_than_equal": "is more than {le:g}; lower it",
}
_CONTINUES_A_PATH: Final = r"\[\d+\][.:\[]|\."  # compiled for the first problem
_BEGINS_WITH_A_KEY: Final = r"[^\W\d][\w-]*(?::|\[\d|\.\S)"


def form_of(value: object) -> str:
    """The tag of a value whose key accepts a list or a mapping."""
    return MAPPING if isinstance(value, Mapping | BaseModel) else LIST


def kind_of(value: object) -> str | None:
    """The tag of a text, a mapping or a list; None for anything else."""
    if isinstance(value, str):
        return TEXT
    if isinstance(value, Mapping):
        return MAPPING
    return LIST if isinstance(value, list | tuple) else None


def one_of(forms: Mapping[str, Any], kind: Callable[[Any], str | None] | None = None) -> Any:
    """The type of a value that is written in one of several forms.

    Args:
        forms: tag → type.
        kind: gives the tag of a value; left out: `kind_of`, and `OTHER` for any other kind.
    """

    def other_kind(value: object) -> str | None:
        form = kind_of(value)
        return form if form in forms else OTHER

    tagged = [Annotated[form, Tag(name)] for name, form in forms.items()]
    return Annotated[reduce(or_, tagged), Discriminator(kind or other_kind)]


class Shape(BaseModel):
    """A frozen part of the configuration that refuses unknown keys.

    Raises:
        ConfigError: one line for each invalid value, joined by `; `.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, arbitrary_types_allowed=True, defer_build=True
    )

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(*lines_of(error)) from None

    # pydantic then builds nested parts without this constructor, so that their errors keep their
    # full path.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """The JSON schema, with the text below each field as its description."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in _field_docstrings(cls).items():
            if name in properties:
                properties[name].setdefault("description", text)
        return schema

    def contradictions(self) -> Iterable[str]:
        """Problems between values that are valid by themselves, each beginning with a key. Called
        if all values are valid.
        """
        return ()

    @classmethod
    def known_keys(cls, written: object) -> Collection[str]:
        """The keys that the part may have; `written` is what it is built from."""
        return cls.model_fields

    @model_validator(mode="wrap")
    @classmethod
    def _checked(cls, value: Any, handler: Any) -> Any:
        """All problems of the part in one error; pydantic alone would not report contradictions
        beside unknown keys.
        """
        if isinstance(value, cls):  # an object, which was validated when it was built
            return handler(value)
        keys = dict.fromkeys(cls.known_keys(value), False) | {
            name: key.is_required() for name, key in cls.model_fields.items()
        }
        return _from_mapping(value, handler, keys, cls.contradictions)


def _from_mapping(
    mapping: object,
    build: Callable[[dict[str, Any]], T],
    required: Mapping[str, bool],
    contradictions: Callable[[T], Iterable[str]] = lambda built: (),
    remedies: Mapping[str, str] | None = None,
) -> T:
    """Build an object from a mapping of its fields.

    Args:
        required: whether each key is required.
        contradictions: problems of an object whose values are valid by themselves.
        remedies: what to write instead of an unknown key, where its spelling does not show it.

    Raises:
        ConfigError: has all problems.
    """
    if not isinstance(mapping, Mapping):
        raise PydanticCustomError(
            "part_type", "not a mapping", {"keys": ", ".join(sorted(required))}
        )
    problems = wrong_keys(mapping, required, remedies=remedies or {})
    try:
        built = build({key: value for key, value in mapping.items() if key in required})
        problems += () if problems else contradictions(built)
    except ValidationError as error:
        # What contradicts may be due to an unknown key.
        problems += [
            line
            for problem in error.errors(include_url=False)
            if problem["loc"] or not problems
            for line in _lines(problem)
        ]
        if not problems:
            raise
    if problems:
        raise ConfigError(*dict.fromkeys(problems))
    return built


@dataclass(frozen=True, eq=False)
class Record:
    """Annotation of a dataclass: a value is a mapping of its parameters, or an instance.

    Attributes:
        remedies: what to write instead of an unknown key, where its spelling does not show it.
    """

    remedies: Mapping[str, str] = field(default_factory=dict)

    def __get_pydantic_core_schema__(
        self, source: type, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        required = {key.name: is_required(key) for key in fields(source) if key.init}
        # Evaluated here, once: pydantic would evaluate the fields of a base for each class, and
        # before 2.10 with the names of another module.
        types = get_type_hints(source, include_extras=True)
        for key in fields(source):
            key.type = types[key.name]

        def read(value: object, build: ValidatorFunctionWrapHandler) -> Any:
            if isinstance(value, source):
                return value
            return _from_mapping(value, build, required, remedies=self.remedies)

        return no_info_wrap_validator_function(read, handler(source))


@dataclass(frozen=True)
class Deferred:
    """Annotation of what is seldom given: its validation is compiled when the first value is read,
    because compiling takes longer than everything else that a start does.

    Attributes:
        form: the type that is read; None: the annotated type, without its other annotations.
    """

    form: Any = None

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        if self.form is None:
            return handler.generate_schema(Annotated[source, Deferred(source)])
        return no_info_plain_validator_function(
            lambda value: _adapter_of(self.form).validate_python(value),
            metadata={_DEFERRED: self.form},
            # older versions of pydantic cannot dump an object whose class is not compiled yet
            serialization=plain_serializer_function_ser_schema(self._dump, info_arg=True),
        )

    def _dump(self, value: object, info: SerializationInfo) -> object:
        return _adapter_of(self.form).dump_python(
            value, mode="json" if info.mode == "json" else "python"
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        if self.form is None:
            return handler(schema)
        # in a frame, because the handler does not read annotations of the outermost schema
        return handler(definitions_schema(_adapter_of(self.form).core_schema, []))


_DEFERRED: Final = "deferred"


@cache
def _adapter_of(form: Any) -> TypeAdapter[Any]:
    return TypeAdapter(form)


def core_schema_of(schema: Any) -> Any:
    """What pydantic checks a value by: for one that is `Deferred`, the schema of its form."""
    metadata = schema.get("metadata", {})
    return _adapter_of(metadata[_DEFERRED]).core_schema if _DEFERRED in metadata else schema


def is_required(parameter: DataclassField[Any]) -> bool:
    """Whether a field of a dataclass has no default."""
    return parameter.default is parameter.default_factory is MISSING


@dataclass(frozen=True, eq=False)
class ReadAs:
    """Annotation of a type whose values are written in another form.

    Attributes:
        form: the type of what users write.
        build: makes the value of it; may raise `ConfigError` or `ValueError`.
    """

    form: Any
    build: Callable[[Any], Any] = lambda value: value

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return handler.generate_schema(Annotated[self.form, AfterValidator(self.build)])


@dataclass(frozen=True, eq=False)
class Words:
    """Annotation: what a message says after an invalid value, e.g. "is not a rule; write …".
    Problems of members of the value keep their own words.
    """

    words: str

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return no_info_wrap_validator_function(self._check, handler(source))

    def _check(self, value: object, handler: ValidatorFunctionWrapHandler) -> object:
        try:
            return handler(value)
        except ValidationError as error:
            if any(
                _path(problem["loc"], "") or problem["type"] in _EXPLAINED
                for problem in error.errors(include_url=False)
            ):
                raise
            raise own_words(self.words) from None


_EXPLAINED: Final = frozenset(
    {
        "value_error",
        "own_words",
        "string_unicode",
        "recursion_loop",
        "recursion_depth_exceeded",
    }
)


def own_words(words: str) -> PydanticCustomError:
    """The error of a validator whose message has these words after the value."""
    return PydanticCustomError("own_words", "{words}", {"words": words})


def part(shape: type[Shape]) -> Any:
    """The default of a field whose value is another part of the configuration: that part with its
    own defaults, which are valid without compiling their validation.
    """
    return Field(default_factory=shape.model_construct, json_schema_extra={"default": {}})


def _field_docstrings(shape: type[Shape]) -> dict[str, str]:
    """The text below each field of a class and of its bases. It is read from the source for a
    schema alone; pydantic's `use_attribute_docstrings` parses it at every start.
    """
    texts: dict[str, str] = {}
    for cls in shape.__mro__[: shape.__mro__.index(Shape)]:
        source = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
        assert isinstance(source, ast.ClassDef)
        for statement, below in pairwise(source.body):
            match statement, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    texts.setdefault(name, inspect.cleandoc(text))
    return texts


def validated(adapter: TypeAdapter[T], value: object, at: str = "") -> T:
    """The value that an adapter reads.

    Args:
        at: the key of the value, for errors.

    Raises:
        ConfigError: the value is invalid; has all problems.
    """
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise ConfigError(*dict.fromkeys(lines_of(error, at))) from None


def _refuse_unordered(value: object) -> object:
    if not isinstance(value, list | tuple):  # pydantic would take a set, which has no order
        raise PydanticKnownError("tuple_type")
    return value


class _NotEmpty:
    """Annotation of a list of at least one value."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "minItems": 1}

    @staticmethod
    def _check(members: tuple[T, ...]) -> tuple[T, ...]:
        # pydantic's own check would count a list of invalid items as empty, too
        if not members:
            raise PydanticCustomError("empty_list", "empty")
        return members


Item = TypeVar("Item")
Part = Annotated[Item, Deferred()]
"""Another part of the configuration."""
LARGEST: Final = 2**50
Whole = Annotated[int, Field(ge=0, le=LARGEST, strict=True)]
Count = Annotated[Whole, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1, strict=True)]
Flag = Annotated[bool, Field(strict=True)]
Items = Annotated[tuple[Item, ...], BeforeValidator(_refuse_unordered)]
Some = Annotated[Items[Item], _NotEmpty()]
"""A list of at least one value."""


def lines_of(error: ValidationError, at: str = "") -> list[str]:
    """One line per problem: `path: value and what would be right`; the path begins with `at`."""
    problems = error.errors(include_url=False)
    return [line for problem in problems for line in _lines(problem, at)]


def _lines(problem: Any, at: str = "") -> list[str]:
    """The lines of one problem: several if a validator found several."""
    path, kind = _path(problem["loc"], at), problem["type"]
    if kind == "value_error":
        cause = problem["ctx"]["error"]
        return [
            joined(path, message)
            for message in (cause.problems if isinstance(cause, ConfigError) else [str(cause)])
        ]
    if kind in ("missing", "invalid_key"):  # found by `wrong_keys`
        return []
    value = "the value" if _SECRET.intersection(problem["loc"]) else _quoted(problem["input"])
    default = "is invalid; " + problem["msg"].replace("Input should", "it should")
    words = _WORDS[kind].format(**problem.get("ctx", {})) if kind in _WORDS else default
    return [f"{path}: {value} {words}" if path else f"{value} {words}"]


def _quoted(value: object) -> str:
    """The value as a message begins with it; `null` is how YAML reads a key without a value."""
    return "null (no value)" if value is None else redacted_repr(value)


def joined(path: str, message: str) -> str:
    """The path before the message; a message that begins with a key or an index of its own
    continues the path.
    """
    if not path:
        return message
    if re.match(_CONTINUES_A_PATH, message):
        return path + message
    return f"{path}.{message}" if re.match(_BEGINS_WITH_A_KEY, message) else f"{path}: {message}"


def _path(location: tuple[Any, ...], at: str) -> str:
    """The path of a value, from the place of the problem that pydantic gives."""
    text = at
    if location[-1:] == ("[key]",):  # a key is invalid, not its value
        location = location[:-2]
    for part in location:
        if not str(part).startswith(tag("")):
            text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def duplicates(key: str, names: Iterable[Any], remedy: str) -> Iterator[str]:
    """A problem for each name that is used more than once."""
    for name, count in Counter(name for name in names if isinstance(name, str)).items():
        if count > 1:
            yield f"{key}: the name {redacted_repr(name)} is used twice; {remedy}"
