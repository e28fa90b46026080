"""Recognise spans: their kind by the rules of the tables, local roots, and which attributes of a
resource identify it.

A reader decodes only the few attributes that decide the kind and remembers each combination, so
that recognising a span costs two look-ups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from otel_eval.caching import cached_property
from otel_eval.conventions.fields import MEMO_BYTES, MEMO_LIMIT, NO_TABLE, ReadTable, is_small
from otel_eval.conventions.table import (
    EVALUATION_MARKS,
    OWN_SCOPE,
    STANDARD_OPERATION,
    STANDARD_TOOL_NAME,
    Convention,
    Mark,
    Rule,
)
from otel_eval.conventions.values import decode, text_of
from otel_eval.globs import Alternatives, alternatives_of, fits, glob
from otel_eval.interfaces import LONG_TEXT, Frame, SpanReader, Wanted
from otel_eval.model import Kind
from otel_eval.records import record


@dataclass(frozen=True, slots=True, eq=False)
class Classification:
    """The kind of a span, and the table that recognised it (`NO_TABLE`: no rule matched); `handoff`
    and `unread` as in `Rule`.

    There is one object for each rule; objects are compared by identity.
    """

    kind: Kind
    table: ReadTable = NO_TABLE
    handoff: bool = False
    unread: bool = False


@record
class Recognition:
    """Why a span was classified as it was; for `otel-eval explain`.

    Attributes:
        table, rule: the convention and the first of its rules that matches; "" and None if no rule
            does.
        evaluation_mark: the mark by which the span belongs to an evaluation and is left out, or
            None.
        looked_at: the attributes of the span that rules test, with their values.
    """

    table: str = ""
    rule: Rule | None = None
    evaluation_mark: Mark | None = None
    looked_at: Mapping[str, Any] = field(default_factory=dict)


UNRECOGNIZED: Final = Classification(Kind.OTHER)
# Spans of this package and of other evaluators: they are left out, not merely of no interest.
DROPPED: Final = Classification(Kind.OTHER)


class _CompiledTable:
    """A convention that is compiled as far as it is used: its rules when a span of a scope to which
    it applies is read, its fields when one of its rules matches.
    """

    def __init__(self, convention: Convention) -> None:
        self.convention: Final = convention
        self._scopes: Final = tuple(map(alternatives_of, convention.scopes))
        if not convention.scopes:  # every span is tested, so do not let the first one wait
            _ = self.rules

    def applies_to(self, scope: str) -> bool:
        """Whether spans of the instrumentation scope may be the convention's."""
        return not self._scopes or any(fits(scopes, scope) for scopes in self._scopes)

    @cached_property
    def rules(self) -> tuple[_CompiledRule, ...]:
        """The rules, compiled."""
        return tuple(_CompiledRule(rule, self) for rule in self.convention.rules)

    @cached_property
    def fields(self) -> ReadTable:
        """What reads the fields of spans that the rules match."""
        return ReadTable(self.convention)


class _CompiledRule:
    """A rule with its globs compiled.

    Attributes:
        value: the alternatives that the attribute's text must match; None: it must only be present.
        names_span: the value contains the span's own name (`{name}`).
        encoded: attribute values of the table are JSON text.
    """

    def __init__(self, rule: Rule, table: _CompiledTable) -> None:
        self.rule: Final = rule
        self.convention: Final = table.convention
        # "*" needs no text to be compared, only the attribute to be present.
        self.value: Final = None if rule.value == "*" else alternatives_of(rule.value)
        self.name: Final = alternatives_of(rule.name) if rule.name else None
        self.names_span: Final = "{name}" in rule.value
        # what the `*` of the name stands for is needed for `{name}` alone
        self._name_pattern: Final = glob(rule.name) if rule.name and self.names_span else None
        self.encoded: Final = table.convention.json_encoded
        # A value of short literal alternatives cannot match a long text, so such a rule never has
        # to search one.
        short = "*" not in rule.value and not any(map(is_long, rule.value.split("|")))
        self._may_match_long: Final = self.value is not None and (
            self.names_span or not short or self.encoded
        )
        self._table: Final = table

    @cached_property
    def _result(self) -> Classification:
        """The classification of a span that the rule matches."""
        rule = self.rule
        return Classification(rule.kind, self._table.fields, rule.handoff, rule.unread)

    @cached_property
    def _result_as_tool(self) -> Classification:
        """That of one that has the standard attributes of a tool call, although the rule is for
        another kind.
        """
        return Classification(Kind.TOOL, self._table.fields)

    def needs_long_text(self, attributes: Mapping[str, Any], span_name: str) -> bool:
        """Whether the rule can be decided only by searching a long text of this span."""
        value = attributes.get(self.rule.key) if self._may_match_long else None
        return isinstance(value, str) and is_long(value) and self._matches_name(span_name)

    def matches(self, attributes: Mapping[str, Any], span_name: str) -> bool:
        """Whether the span meets all conditions of the rule; an empty attribute counts as
        missing.
        """
        key = self.rule.key
        if key:
            value = attributes.get(key)
            if value is None or value == "":
                return False
            if self.value is not None and not fits(
                self._value_for(span_name), _comparable(value, self.encoded)
            ):
                return False
        return self._matches_name(span_name)

    def _value_for(self, span_name: str) -> Alternatives:
        """The value with the span's name, or what the rule captures of it, in place of
        `{name}`.
        """
        assert self.value is not None
        if not self.names_span:
            return self.value
        match = self._name_pattern and self._name_pattern.fullmatch(span_name)
        if match is not None:
            span_name = next((part for part in match.groups() if part), span_name)
        return tuple(
            tuple(part.replace("{name}", span_name) for part in parts) for parts in self.value
        )

    def _matches_name(self, span_name: str) -> bool:
        return self.name is None or fits(self.name, span_name)

    def classification(self, *, is_standard: bool) -> Classification:
        """The classification of a span that the rule matches.

        Args:
            is_standard: whether the span has the standard attributes of a tool call.
        """
        rule = self.rule
        is_on_purpose = rule.handoff or rule.unread or rule.artefact or rule.kind is Kind.TOOL
        return self._result_as_tool if is_standard and not is_on_purpose else self._result

    def candidate(self, span_name: str, result: Classification, *, certain: bool) -> _Candidate:
        """Return the rule as the memo holds it for spans of this name: what their long text must
        match, and the classification then.

        Args:
            certain: the rule matches whatever the long text is.
        """
        value = None if certain or self.value is None else self._value_for(span_name)
        return _Candidate(self.rule.key, value, self.encoded, result)


def _comparable(value: Any, encoded: bool) -> str:
    """The text that a rule's value is compared with; for an object its JSON text."""
    read = decode(value, literals=False) if encoded else value
    return text_of(value if isinstance(read, (dict, list)) else read)


class _Candidate(NamedTuple):
    """A rule that may match spans which differ only in a long text.

    Attributes:
        key: the attribute with the long text.
        value: what the text must match; None if the rule matches in any case.
        encoded: the text is JSON.
        result: the classification if the rule matches.
    """

    key: str
    value: Alternatives | None
    encoded: bool
    result: Classification


class _Undecided(NamedTuple):
    """What a memo holds of spans that only a long text decides.

    Attributes:
        wanted: the attributes with the texts.
        candidates: the rules that may match, in order, up to one that surely does.
    """

    wanted: Wanted
    candidates: tuple[_Candidate, ...]


_Memo = dict[Any, Classification | _Undecided]
# in all memos together, since the names of scopes are input, too
_MOST_ENTRIES: Final = 16 * MEMO_LIMIT


class ScopeReader:
    """Classifies the spans of the instrumentation scopes to which the same tables apply.

    Results are memoised. The key leaves out what differs from span to span without changing the
    result: the values of attributes that rules test only for presence, such as call ids, and long
    texts. The memo holds a classification, or, where rules search a long text (LangChain's
    `metadata`), the few candidates that remain to be tested.

    Attributes:
        dropped: all spans of the scope are left out.
        known: a table is for this scope.
        lacks_tool_spans: a table for this scope says that calls of tools leave no spans; then none
            of its other tables may promise them.
        wanted: the attributes that rules test.
    """

    __slots__ = (
        "_memo",
        "_memos",
        "_rules",
        "_searched",
        "_tests_name",
        "known",
        "lacks_tool_spans",
        "wanted",
    )

    dropped = False

    def __init__(self, rules: Sequence[_CompiledRule], memos: list[_Memo]) -> None:
        scoped = [rule.convention for rule in rules if rule.convention.scopes]
        self.known = bool(scoped)
        self.lacks_tool_spans = any(convention.tool_spans is False for convention in scoped)
        self._rules = tuple(rules)
        self._tests_name = any(rule.name is not None or rule.names_span for rule in rules)
        # Of an attribute in `presence` a fingerprint holds only that it is set: no rule compares
        # its value.
        compared = {compiled.rule.key for compiled in rules if compiled.value is not None} | {
            mark.key for mark in EVALUATION_MARKS
        }
        keys = {compiled.rule.key for compiled in rules if compiled.rule.key} | compared
        self.wanted = Wanted(
            frozenset(keys), presence=frozenset(keys - compared), short=True, named=self._tests_name
        )
        self._memo: _Memo = {}
        self._memos = memos
        memos.append(self._memo)
        self._searched: dict[frozenset[str], Wanted] = {}

    def read(self, span: SpanReader) -> Classification:
        """Classify the span."""
        # A fingerprint is made without decoding. Spans with equal ones differ at most in long
        # texts, so most spans are recognised without decoding an attribute.
        fingerprint = span.fingerprint(self.wanted)
        entry = self._memo.get(fingerprint)
        if type(entry) is Classification:
            return entry
        if fingerprint is None:
            return self._read_decoded(span)
        if entry is None:
            entry = self._decide(*self._tested(span))
            if is_small(fingerprint):
                self._remember(fingerprint, entry)
        return (
            entry
            if isinstance(entry, Classification)
            else _resolve(entry, span.attributes(entry.wanted))
        )

    def _read_decoded(self, span: SpanReader) -> Classification:
        """Classify a span of a source without fingerprints: the memo key is made of decoded
        attributes.
        """
        attributes, name = self._tested(span)
        if not attributes and not name:
            return UNRECOGNIZED
        try:
            key = (name, *map(self._key_part, attributes, attributes.values()))
            entry = self._memo.get(key)
        except TypeError:  # an attribute holds a list where text was expected
            return _resolve(self._decide(attributes, name), attributes)
        if entry is None:
            entry = self._decide(attributes, name)
            if len(name) <= MEMO_BYTES:
                self._remember(key, entry)
        return _resolve(entry, attributes)

    def _remember(self, key: Any, entry: Classification | _Undecided) -> None:
        """Add an entry; full memos are emptied, which costs less than tracking what was used
        last.
        """
        if len(self._memo) >= MEMO_LIMIT or sum(map(len, self._memos)) >= _MOST_ENTRIES:
            for memo in self._memos:
                memo.clear()
        self._memo[key] = entry

    def _tested(self, span: SpanReader) -> tuple[dict[str, Any], str]:
        """Decode what the rules test: attributes, and the span's name if a rule tests it."""
        return span.attributes(self.wanted), span.name if self._tests_name else ""

    def _key_part(self, key: str, value: Any) -> Any:
        """An attribute as a part of a memo key: its value where rules compare it and it is short,
        else only its presence.
        """
        if isinstance(value, str) and value and (key in self.wanted.presence or is_long(value)):
            return key
        return key, type(value), value  # 1, 1.0 and True are equal, and spelt differently

    def _decide(self, attributes: Mapping[str, Any], name: str) -> Classification | _Undecided:
        """Return the classification, or what remains to be tested if a long text decides."""
        if self._evaluation_mark(attributes) is not None:  # the marks are short
            return DROPPED
        is_standard = _is_standard(attributes)
        candidates: list[_Candidate] = []
        for rule in self._rules:
            is_certain = not rule.needs_long_text(attributes, name)
            if is_certain and not rule.matches(attributes, name):
                continue
            result = rule.classification(is_standard=is_standard)
            candidates.append(rule.candidate(name, result, certain=is_certain))
            if is_certain:
                break
        if candidates and candidates[0].value is not None:
            keys = frozenset(rule.key for rule in candidates if rule.value is not None)
            return _Undecided(self._searched.setdefault(keys, Wanted(keys)), tuple(candidates))
        return candidates[0].result if candidates else UNRECOGNIZED

    def _evaluation_mark(self, attributes: Mapping[str, Any]) -> Mark | None:
        """The mark by which the span belongs to an evaluation, or None."""
        return next(
            (
                mark
                for mark in EVALUATION_MARKS
                if text_of(attributes.get(mark.key)).upper() == mark.value.upper()
            ),
            None,
        )

    def explain(self, span: SpanReader) -> Recognition:
        """Why `read` classifies the span as it does; not memoised."""
        attributes = span.attributes(self.wanted)
        mark = self._evaluation_mark(attributes)
        decided = next((rule for rule in self._rules if rule.matches(attributes, span.name)), None)
        if mark is not None or decided is None:
            return Recognition(evaluation_mark=mark, looked_at=attributes)
        return Recognition(decided.convention.name, decided.rule, looked_at=attributes)


class _OwnScopeReader(ScopeReader):
    """Drops the spans that this package records about its own work: they must not be evaluated in
    turn.
    """

    __slots__ = ()
    dropped = True

    def read(self, span: SpanReader) -> Classification:
        return DROPPED


def _is_standard(attributes: Mapping[str, Any]) -> bool:
    """Whether a span has the standard attributes of a tool call."""
    key, operation = STANDARD_OPERATION
    return attributes.get(key) == operation and attributes.get(STANDARD_TOOL_NAME) not in (None, "")


def _resolve(entry: Classification | _Undecided, attributes: Mapping[str, Any]) -> Classification:
    """Test what a memo entry leaves open against the long texts of this span."""
    if isinstance(entry, Classification):
        return entry
    for key, value, encoded, result in entry.candidates:
        if value is None or fits(
            value, _comparable(attributes[key], encoded) if encoded else attributes[key]
        ):
            return result
    return UNRECOGNIZED


def is_long(text: str) -> bool:
    """Whether the text has more than `LONG_TEXT` bytes in UTF-8, as the extension counts."""
    return len(text) > LONG_TEXT or (
        4 * len(text) > LONG_TEXT and len(text.encode("utf-8", "surrogatepass")) > LONG_TEXT
    )


class Reader:
    """All tables, in order: the first whose scopes match and one of whose rules matches decides."""

    def __init__(self, conventions: Iterable[Convention]) -> None:
        self._tables = tuple(map(_CompiledTable, conventions))
        self._scopes: dict[str, ScopeReader] = {}
        # by whether the scope is ours, and the indexes of its tables
        self._readers: dict[tuple[bool, tuple[int, ...]], ScopeReader] = {}
        self._memos: list[_Memo] = []

    def of_scope(self, scope_name: str) -> ScopeReader:
        """The reader for the spans of one instrumentation scope."""
        reader = self._scopes.get(scope_name)
        if reader is None:
            # scope names are input, and must not fill the memory
            if len(self._scopes) >= MEMO_LIMIT:
                self._scopes.clear()
            reader = self._scopes[scope_name] = self._for(scope_name)
        return reader

    def _for(self, scope: str) -> ScopeReader:
        """Find or create the reader with the rules that apply to a scope."""
        is_ours = scope == OWN_SCOPE or scope.startswith(OWN_SCOPE + ".")
        indexes = [index for index, table in enumerate(self._tables) if table.applies_to(scope)]
        key = is_ours, tuple(indexes)
        if key not in self._readers:
            rules = [rule for index in indexes for rule in self._tables[index].rules]
            reader = _OwnScopeReader if is_ours else ScopeReader
            self._readers[key] = reader(rules, self._memos)
        return self._readers[key]


# OTLP: SERVER, CONSUMER. They start a process's part even where no flag records it.
_ENTRY_KINDS: Final = (2, 5)


def parent_is_remote(frame: Frame, span: SpanReader | None = None) -> bool | None:
    """Whether the parent that a span names is in another process, by its flags or else its kind;
    None if neither shows it.

    Args:
        frame: the span; its parent's id is not empty.
        span: the span's reader, where there is one already.
    """
    span = span or frame[2].reader(frame[1])
    remote = span.parent_is_remote
    return span.span_kind in _ENTRY_KINDS or None if remote is None else remote


_MCP_METHOD: Final = Wanted(frozenset({"mcp.method.name"}))


def is_mcp_server(span: SpanReader) -> bool:
    """Whether the span is that of an MCP server, which answers a request of an agent elsewhere."""
    return span.span_kind in _ENTRY_KINDS and bool(span.attributes(_MCP_METHOD))


def is_local_root(frame: Frame, span: SpanReader | None = None) -> bool:
    """Whether the span is a root, or certainly the first span of its process."""
    return not frame[0] or bool(parent_is_remote(frame, span))


_IDENTITY: Final = (
    *("service.name", "service.namespace", "service.instance.id", "service.version"),
    *("deployment.environment.name", "deployment.environment", "openinference.project.name"),
)
_LONGEST: Final = 8192
_LONGEST_VALUE: Final = 256


def exported_resource(attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the attributes of a resource that are exported: all, or those that identify the
    service and project if it is large.

    A resource is large with more than 8,192 characters; identifying values longer than 256 are left
    out, too. The journal holds the resource of each report, so without a limit one request could
    grow it by the request's size for each of its traces.
    """
    if sum(len(key) + len(str(value)) for key, value in attributes.items()) <= _LONGEST:
        return attributes
    identity = {key: attributes[key] for key in _IDENTITY if key in attributes}
    return {
        key: value
        for key, value in identity.items()
        if isinstance(value, str) and len(value) <= _LONGEST_VALUE
    }
