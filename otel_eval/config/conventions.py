"""Reads a user-defined convention from a mapping in the configuration, with the keys and types of
built-in tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from types import GenericAlias
from typing import Annotated, Any, Final, Literal, get_type_hints

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    ValidationError,
    create_model,
)

from otel_eval.conventions import table
from otel_eval.conventions.message_formats import WRAPPERS, Wrapper
from otel_eval.conventions.table import Convention, EventRow, Mark, MessageRow, Rule
from otel_eval.conventions.values import TEXT_WRAPPERS
from otel_eval.errors import ConfigError, did_you_mean, redacted_repr
from otel_eval.validation import LIST, MAPPING, Shape, form_of, lines_of


def _scalar(value: Any) -> Any:
    """A boolean or number as the text of an attribute, because YAML does not read an unquoted
    `true` or `1` as text.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else value


def _as_tuple(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _wrapper_name(name: str) -> str:
    known = {**WRAPPERS, **TEXT_WRAPPERS}
    if name not in known:
        raise ValueError(f"{redacted_repr(name)} is no wrapper; {did_you_mean(name, [*known])}")
    return name


_JSON_TYPES: Final = {"object": dict, "array": list, "string": str, "boolean": bool}


class _Row(Shape, use_attribute_docstrings=False):
    """A record whose fields are those of a dataclass."""


class _Type(Shape):
    """A required type, written as a mapping to distinguish it from a required text."""

    type: Literal["object", "array", "string", "boolean"]


def _needs(given: Mapping[str, Any]) -> tuple[tuple[str, str | type], ...]:
    if not given:
        raise ValueError('it names no key; write e.g. {input: "*"} or {input: {type: object}}')
    return tuple(
        (key, _JSON_TYPES[need.type] if isinstance(need, _Type) else need)
        for key, need in given.items()
    )


def _with_condition(rule: Rule) -> Rule:
    if not rule.key and not rule.name:
        raise ValueError(
            "the rule holds for every span; name an attribute (key) or a span name (name)"
        )
    return rule


def _not_empty(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    if not rules:
        raise ValueError("[] holds no rule; describe which spans are agents, models and tools")
    return rules


def _record(cls: type, *validators: Any) -> Any:
    """The pydantic type that reads a record of the class from a mapping of its fields."""
    hints = get_type_hints(cls)
    defaults = {
        each.name: ... if each.default is each.default_factory is MISSING else each.default
        for each in fields(cls)
    }
    known: dict[str, Any] = {
        name: (_TYPES.get(hint, hint), defaults[name]) for name, hint in hints.items()
    }
    shape = create_model(f"{cls.__name__}Shape", __base__=_Row, **known)
    build = AfterValidator(
        lambda row: cls(**{key: getattr(row, key) for key in row.model_fields_set})
    )
    return Annotated[shape, build, *validators]


def _records(row: Any, *validators: Any) -> Any:
    """The pydantic type of a list of records."""
    return Annotated[GenericAlias(tuple, (row, ...)), BeforeValidator(_as_tuple), *validators]


def _text_or_mapping(text: Any, mapping: Any) -> Any:
    """The pydantic type of a text or a mapping, with a type for each."""
    return Annotated[
        Annotated[text, Tag(LIST)] | Annotated[mapping, Tag(MAPPING)], Discriminator(form_of)
    ]


_Text = Annotated[str, Field(min_length=1)]
_Flag = Annotated[bool, Field(strict=True)]
_Scalar = Annotated[_Text, BeforeValidator(_scalar)]
_Texts = Annotated[tuple[_Text, ...], BeforeValidator(_as_tuple)]
_Names = Annotated[frozenset[_Text], BeforeValidator(_as_tuple)]
# The pydantic types that read fields of tables and rows, by the types of these fields.
_TYPES: Final[dict[Any, Any]] = {
    str: _Scalar,
    bool: _Flag,
    bool | None: Annotated[
        _Flag | None, BeforeValidator(lambda value: None if value == "unknown" else value)
    ],
    tuple[str, ...]: _Texts,
    frozenset[str]: _Names,
    frozenset[str] | None: _Names | None,
    Mapping[table.Field, tuple[str, ...]]: dict[table.Field, _Texts],
    Mapping[str, str]: dict[_Text, _Text],
    # Texts that mean "not recorded"; one of them may be empty.
    Mapping[str, frozenset[str]]: dict[
        _Text,
        Annotated[frozenset[Annotated[str, BeforeValidator(_scalar)]], BeforeValidator(_as_tuple)],
    ],
    tuple[tuple[str, str | type], ...]: Annotated[
        dict[_Text, _text_or_mapping(_Scalar, _Type)],  # type: ignore[misc] # a type that is built at runtime
        AfterValidator(_needs),
    ],
}
_TYPES.update(
    {
        GenericAlias(tuple, (row, ...)): _records(_record(row))
        for row in (Mark, EventRow, MessageRow)
    }
)
_TYPES[tuple[Rule, ...]] = _records(
    _record(Rule, AfterValidator(_with_condition)), AfterValidator(_not_empty)
)
_TYPES[tuple[str | Wrapper, ...]] = _records(
    _text_or_mapping(Annotated[_Text, AfterValidator(_wrapper_name)], _record(Wrapper))
)
_TABLE: Final = _record(Convention)


def convention_from_mapping(mapping: Mapping[str, Any]) -> Convention:
    """The table that a mapping describes; keys are the fields of `Convention`, rows are mappings of
    their fields.

    >>> table = convention_from_mapping(
    ...     {
    ...         "name": "mine",
    ...         "rules": [{"kind": "tool", "key": "my.tool"}],
    ...         "fields": {"tool_name": "my.tool"},
    ...     }
    ... )
    >>> table.rules[0].kind
    <Kind.TOOL: 'tool'>

    Raises:
        ConfigError: keys are missing or unknown, or values cannot be used: all problems, each with
            its path in the mapping.
    """
    if not isinstance(mapping, Mapping):
        raise ConfigError(
            f"convention: {redacted_repr(mapping)} is not a mapping; write name, rules and fields"
        )
    try:
        return TypeAdapter[Convention](_TABLE).validate_python(
            {"source": "configuration", **mapping}
        )
    except ValidationError as error:
        raise ConfigError(*lines_of(error)) from None
