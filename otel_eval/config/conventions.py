"""Reads conventions from mappings: those of a configuration and the built-in ones, which have the
same form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
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

from otel_eval.config.extended_tables import ExtendedTable
from otel_eval.conventions import TABLES, table
from otel_eval.conventions.message_formats import JSON_TYPES, WRAPPERS, Wrapper
from otel_eval.conventions.table import Convention, EventRow, Mark, MessageRow, Rule
from otel_eval.conventions.values import TEXT_WRAPPERS
from otel_eval.errors import ConfigError, did_you_mean, redacted_repr
from otel_eval.validation import LIST, MAPPING, Shape, form_of, joined, lines_of


def _text_of_scalar(value: object) -> object:
    """A boolean or number as the text of an attribute, because YAML does not read an unquoted
    `true` or `1` as text.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else value


def _text_as_tuple(value: object) -> object:
    """A text as a tuple of it alone, because a list of one text may be written as the text; any
    other value as it is.
    """
    return (value,) if isinstance(value, str) else value


def _check_wrapper_name(name: str) -> str:
    """Return the name; raises ValueError if no wrapper has it."""
    wrappers = {**WRAPPERS, **TEXT_WRAPPERS}
    if name not in wrappers:
        raise ValueError(f"{redacted_repr(name)} is no wrapper; {did_you_mean(name, [*wrappers])}")
    return name


_TYPE_NAMES: Final = {cls: name for name, cls in JSON_TYPES.items()}


class _Row(Shape):
    """A record whose fields are those of a dataclass."""


class _Type(Shape):
    """A required type, written as a mapping to distinguish it from a required text."""

    type: Literal["object", "array", "string", "boolean"]


def _read_needs(needs: Mapping[str, Any]) -> tuple[tuple[str, str | type], ...]:
    """Pairs of a key of a message and the text or the type that its value must have; raises
    ValueError if there is none.
    """
    if not needs:
        raise ValueError('it names no key; write e.g. {input: "*"} or {input: {type: object}}')
    return tuple(
        (key, JSON_TYPES[need.type] if isinstance(need, _Type) else need)
        for key, need in needs.items()
    )


def _check_condition(rule: Rule) -> Rule:
    """Return the rule; raises ValueError if it has no condition, and so holds for every span."""
    if not rule.key and not rule.name:
        raise ValueError(
            "the rule holds for every span; name an attribute (key) or a span name (name)"
        )
    return rule


def _check_not_empty(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """Return the rules; raises ValueError if there is none."""
    if not rules:
        raise ValueError("[] holds no rule; describe which spans are agents, models and tools")
    return rules


def _record(cls: type, *validators: Any) -> Any:
    """The pydantic type that reads a record of the class from a mapping of its fields."""
    hints = get_type_hints(cls)
    types: dict[str, Any] = {
        field.name: (
            _TYPES.get(hints[field.name], hints[field.name]),
            ... if field.default is field.default_factory is MISSING else field.default,
        )
        for field in fields(cls)
    }
    shape = create_model(f"{cls.__name__}Shape", __base__=_Row, **types)
    build = AfterValidator(
        lambda row: cls(**{key: getattr(row, key) for key in row.model_fields_set})
    )
    return Annotated[shape, build, *validators]


def _records(row: object, *validators: Any) -> Any:
    """The pydantic type of a list of records."""
    return Annotated[GenericAlias(tuple, (row, ...)), BeforeValidator(_text_as_tuple), *validators]


def _text_or_mapping(text: object, mapping: object) -> Any:
    """The pydantic type of a text or a mapping, with a type for each."""
    return Annotated[
        Annotated[text, Tag(LIST)] | Annotated[mapping, Tag(MAPPING)], Discriminator(form_of)
    ]


_Text = Annotated[str, Field(min_length=1)]
_Flag = Annotated[bool, Field(strict=True)]
_Scalar = Annotated[_Text, BeforeValidator(_text_of_scalar)]
_Texts = Annotated[tuple[_Text, ...], BeforeValidator(_text_as_tuple)]
_Names = Annotated[frozenset[_Text], BeforeValidator(_text_as_tuple)]
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
        Annotated[
            frozenset[Annotated[str, BeforeValidator(_text_of_scalar)]],
            BeforeValidator(_text_as_tuple),
        ],
    ],
    tuple[tuple[str, str | type], ...]: Annotated[
        # a type that is built at runtime
        dict[_Text, _text_or_mapping(_Scalar, _Type)],  # type: ignore[misc]
        AfterValidator(_read_needs),
    ],
}
_TYPES.update(
    {
        GenericAlias(tuple, (row, ...)): _records(_record(row))
        for row in (Mark, EventRow, MessageRow)
    }
)
_TYPES[tuple[Rule, ...]] = _records(
    _record(Rule, AfterValidator(_check_condition)), AfterValidator(_check_not_empty)
)
_TYPES[tuple[str | Wrapper, ...]] = _records(
    _text_or_mapping(Annotated[_Text, AfterValidator(_check_wrapper_name)], _record(Wrapper))
)
_TABLE: Final = _record(Convention)


def convention_from_mapping(
    mapping: Mapping[str, Any], tables: Mapping[str, Convention] | None = None
) -> Convention:
    """The table that a mapping describes; keys are `extends` and the fields of `Convention`, rows
    are mappings of their fields.

    >>> table = convention_from_mapping(
    ...     {
    ...         "name": "mine",
    ...         "extends": "gen_ai",
    ...         "rules": [{"kind": "tool", "key": "my.tool"}, {"from": "gen_ai"}],
    ...         "fields": {"tool_name": "my.tool"},
    ...     }
    ... )
    >>> table.rules[0].kind
    <Kind.TOOL: 'tool'>

    Args:
        mapping: the table as it is written.
        tables: those that it may extend, by name; without any the built-in ones.

    Raises:
        ConfigError: keys are missing or unknown, or values cannot be used: all problems, each with
            its path in the mapping.
    """
    if not isinstance(mapping, Mapping):
        raise ConfigError(
            f"convention: {redacted_repr(mapping)} is not a mapping; write name, rules and fields"
        )
    other_tables = _BUILT_IN if tables is None else tables
    extended = ExtendedTable(mapping, lambda name: _mapping_of_name(name, other_tables))
    try:
        return TypeAdapter[Convention](_TABLE).validate_python(
            {"source": "configuration", **extended.mapping}
        )
    except ValidationError as error:
        raise ConfigError(*map(extended.as_written, lines_of(error))) from None


def conventions_from_list(values: Iterable[Any]) -> tuple[Convention, ...]:
    """The tables of a configuration: mappings, or conventions that were built before. Each may
    extend the built-in tables and those above it.

    Raises:
        ConfigError: all problems, each with the index of its table.
    """
    tables: list[Convention] = []
    problems: list[str] = []
    for index, value in enumerate(values):
        if isinstance(value, Convention):
            tables.append(value)
        elif not isinstance(value, Mapping):
            problems.append(
                f"[{index}]: {redacted_repr(value)} is not a convention; write a mapping"
            )
        else:
            other_tables = {**_BUILT_IN, **{table.name: table for table in tables}}
            try:
                tables.append(convention_from_mapping(value, other_tables))
            except ConfigError as error:
                problems += [joined(f"[{index}]", problem) for problem in error.problems]
    if problems:
        raise ConfigError(*problems)
    return tuple(tables)


_BUILT_IN: Final = {table.name: table for table in TABLES}


def _mapping_of_name(name: object, tables: Mapping[str, Convention]) -> Mapping[str, Any]:
    """The mapping of the table with the name."""
    if not isinstance(name, str) or name not in tables:
        raise ConfigError(f"{redacted_repr(name)} is no convention; {did_you_mean(name, tables)}")
    return mapping_of(tables[name])


def mapping_of(convention: Convention) -> dict[str, Any]:
    """The mapping that describes the table, without the keys that have their defaults."""
    return {key: _plain(value) for key, value in _differing(convention).items()}


def _differing(record: Any) -> dict[str, Any]:
    """The fields of a record that have not their default."""
    return {
        field.name: value
        for field in fields(record)
        if (value := getattr(record, field.name)) != field.default
        and not (value == {} and field.default_factory is dict)
    }


def _plain(value: object) -> object:
    """A part of a table as JSON and YAML hold it."""
    if isinstance(value, Wrapper):
        needs = {
            key: {"type": _TYPE_NAMES[need]} if isinstance(need, type) else need
            for key, need in value.needs
        }
        return {key: _plain(part) for key, part in {**_differing(value), "needs": needs}.items()}
    if is_dataclass(value):
        return {key: _plain(part) for key, part in _differing(value).items()}
    if isinstance(value, Mapping):
        return {_plain(key): _plain(part) for key, part in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return str(value) if isinstance(value, StrEnum) else value
