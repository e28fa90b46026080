"""Recognise what kind of span a span is, by the rules of the tables.

A reader decodes only the few attributes that decide the kind and remembers each combination, so that recognising a span costs two
look-ups.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from otel_eval.conventions.fields import MEMO_BYTES, MEMO_LIMIT, ReadTable
from otel_eval.conventions.table import EVALUATION_MARKS, OWN_SCOPE, Convention, Mark, Rule
from otel_eval.conventions.values import decode, text_of
from otel_eval.globs import Alternatives, alternatives_of, fits, glob
from otel_eval.interfaces import LONG_TEXT, SpanReader, Wanted
from otel_eval.model import Kind

__all__ = ["DROPPED", "UNRECOGNIZED", "Classification", "ReadTable", "Reader", "Recognition", "ScopeReader"]


@dataclass(frozen=True, slots=True)
class Classification:
    """What a span is, and the table that knew it (None: no table did); `handoff` as in `Rule`."""

    kind: Kind
    table: ReadTable | None = None
    handoff: bool = False


@dataclass(frozen=True, slots=True)
class Recognition:
    """Why a span was read as what it is.

    Attributes:
        table, rule: the convention and the first of its rules that holds; "" and None if no rule does.
        evaluation_mark: the mark by which the span belongs to an evaluation and is left out, or None.
        looked_at: of the attributes that rules look at those that the span has, with their values.
    """

    table: str = ""
    rule: Rule | None = None
    evaluation_mark: Mark | None = None
    looked_at: Mapping[str, Any] = field(default_factory=dict)


UNRECOGNIZED: Final = Classification(Kind.OTHER)
DROPPED: Final = Classification(Kind.OTHER)


@dataclass(slots=True)
class _Compiled:
    rule: Rule
    table: ReadTable
    value: Alternatives | None
    name: re.Pattern[str] | None
    reading: Classification = field(init=False)

    own: bool = field(init=False)
    encoded: bool = field(init=False)
    _searches: bool = field(init=False)

    def __post_init__(self) -> None:
        self.reading = Classification(self.rule.kind, self.table, self.rule.handoff)
        self.own = "{name}" in self.rule.value
        self.encoded = self.table.convention.json_encoded
        short = "*" not in self.rule.value and not any(map(_is_long, self.rule.value.split("|")))
        self._searches = self.value is not None and (self.own or not short or self.encoded)

    def is_open(self, read: Mapping[str, Any], span_name: str) -> bool:
        """Whether it takes a long text to say if the rule holds."""
        value = read.get(self.rule.key) if self._searches else None
        return isinstance(value, str) and _is_long(value) and self._is_named(span_name)

    def holds(self, read: Mapping[str, Any], span_name: str) -> bool:
        key = self.rule.key
        if key:
            value = read.get(key)
            if value is None or value == "":
                return False
            if self.value is not None and not fits(self._value_for(span_name), _text(value, self.encoded)):
                return False
        return self._is_named(span_name)

    def _value_for(self, span_name: str) -> Alternatives:
        """The value with the span's name in place of `{name}`."""
        assert self.value is not None
        if not self.own:
            return self.value
        return tuple(tuple(part.replace("{name}", span_name) for part in parts) for parts in self.value)

    def _is_named(self, span_name: str) -> bool:
        return self.name is None or self.name.fullmatch(span_name) is not None

    def bound(self, span_name: str, *, certain: bool) -> _Open:
        """What of the rule remains to be asked of spans of this name."""
        if certain or self.value is None:
            return _Open(self.rule.key, None, self.encoded, self.reading)
        return _Open(self.rule.key, self._value_for(span_name), self.encoded, self.reading)


def _text(value: Any, encoded: bool) -> str:
    """The text that is compared; of an object its JSON text."""
    read = decode(value, literals=False) if encoded else value
    return text_of(value if isinstance(read, (dict, list)) else read)


class _Open(NamedTuple):
    """A rule that depends on a long text, or, without a value, the rule that holds in any case."""

    key: str
    value: Alternatives | None
    encoded: bool
    reading: Classification


_Rules = tuple[_Open, ...]


class ScopeReader:
    """The rules that apply within one instrumentation scope.

    Decisions are remembered by the attributes without what does not matter (texts that rules only look for, such as ids) and
    without long texts. Such an entry is a reading, or the few rules that depend on the long texts.
    """

    __slots__ = ("_memo", "_open", "_rules", "dropped", "marks", "named", "unsure", "wanted")

    def __init__(self, rules: Sequence[_Compiled], *, dropped: bool) -> None:
        self.dropped = dropped
        self._rules = tuple(rules)
        self.named = any(each.name is not None or each.own for each in rules)
        compared = {each.rule.key for each in rules if each.value is not None} | {mark.key for mark in EVALUATION_MARKS}
        keys = {each.rule.key for each in rules if each.rule.key} | compared
        self.wanted = Wanted(frozenset(keys), presence=frozenset(keys - compared), short=True)
        self._memo: dict[Any, Classification | _Rules] = {}
        self._open: dict[Any, _Rules] = {}
        self.marks: dict[Any, Classification] = {}
        self.unsure = False  # whether a model span was seen whose instrumentation is not known to record tool spans

    def read(self, view: SpanReader) -> Classification:
        """What the span is."""
        fingerprint = getattr(view, "fingerprint", None)
        mark = fingerprint(self.wanted) if fingerprint is not None else None
        if mark is None:
            return self._read(view)
        # Spans with equal fingerprints differ at most in long texts: most need not be decoded to be recognised.
        key = (view.name, mark) if self.named else mark
        known = self.marks.get(key)
        return self._read_marked(view, key, len(mark)) if known is None else known

    def _read_marked(self, view: SpanReader, key: Any, size: int) -> Classification:
        read, name = self._looked_at(view)
        found = self._open.get(key)
        entry = self._decided(read, name) if found is None else found
        if found is None and size <= MEMO_BYTES:
            _keep(self._open if isinstance(entry, tuple) else self.marks, key, entry)
        return self._finished(entry, read)

    def _read(self, view: SpanReader) -> Classification:
        read, name = self._looked_at(view)
        if not read and not name:
            return UNRECOGNIZED
        try:
            key = (name, *map(self._stands_for, read, read.values()))
            entry = self._memo.get(key)
        except TypeError:  # an attribute holds a list where text was expected
            return self._finished(self._decided(read, name), read)
        if entry is None:
            entry = self._decided(read, name)
            _keep(self._memo, key, entry)
        return self._finished(entry, read)

    def _looked_at(self, view: SpanReader) -> tuple[dict[str, Any], str]:
        return view.attributes(self.wanted), view.name if self.named else ""

    def _stands_for(self, key: str, value: Any) -> Any:
        if isinstance(value, str) and value and (key in self.wanted.presence or _is_long(value)):
            return key
        return key, type(value), value  # 1, 1.0 and True are equal, and spelt differently

    def _decided(self, read: Mapping[str, Any], name: str) -> Classification | _Rules:
        """The reading, if it does not depend on long texts; else the rules that may still decide, in order."""
        if self._evaluation_mark(read) is not None:  # the marks are short
            return DROPPED
        left: list[_Open] = []
        for rule in self._rules:
            if rule.is_open(read, name):
                left.append(rule.bound(name, certain=False))
            elif rule.holds(read, name):
                left.append(rule.bound(name, certain=True))
                break
        if left and left[0].value is not None:
            return tuple(left)
        return self._noted(left[0].reading if left else UNRECOGNIZED)

    def _finished(self, entry: Classification | _Rules, read: Mapping[str, Any]) -> Classification:
        if isinstance(entry, Classification):
            return entry
        for key, value, encoded, reading in entry:
            if value is None or fits(value, _text(read[key], encoded)):
                return self._noted(reading)
        return UNRECOGNIZED

    def _noted(self, found: Classification) -> Classification:
        if found.kind is Kind.MODEL and found.table is not None and found.table.tool_spans is not True:
            self.unsure = True
        return found

    def _evaluation_mark(self, read: Mapping[str, Any]) -> Mark | None:
        return next((mark for mark in EVALUATION_MARKS if text_of(read.get(mark.key)).upper() == mark.value.upper()), None)

    def explain(self, view: SpanReader) -> Recognition:
        """Why the span is what `read` returns; not remembered."""
        read = view.attributes(self.wanted)
        mark = self._evaluation_mark(read)
        decided = next((rule for rule in self._rules if rule.holds(read, view.name)), None)
        if mark is not None or decided is None:
            return Recognition(evaluation_mark=mark, looked_at=read)
        return Recognition(table=decided.table.name, rule=decided.rule, looked_at=read)


def _keep(memo: dict[Any, Any], key: Any, entry: Classification | _Rules) -> None:
    if len(memo) >= MEMO_LIMIT:
        memo.clear()
    memo[key] = entry


def _is_long(text: str) -> bool:
    """Whether the text has more than `LONG_TEXT` bytes, as the extension counts."""
    return len(text) > LONG_TEXT or (4 * len(text) > LONG_TEXT and len(text.encode("utf-8", "surrogatepass")) > LONG_TEXT)


class Reader:
    """All tables, in order: the first whose scope fits and one of whose rules holds decides."""

    def __init__(self, conventions: Iterable[Convention]) -> None:
        self.tables = tuple(ReadTable(each) for each in conventions)
        self._scopes: dict[str, ScopeReader] = {}
        self._rules = tuple(
            (
                tuple(glob(each) for each in table.convention.scopes),
                tuple(_compile(rule, table) for rule in table.convention.rules),
            )
            for table in self.tables
        )

    def of_scope(self, scope_name: str) -> ScopeReader:
        """The reader of the spans of one instrumentation scope."""
        known = self._scopes.get(scope_name)
        if known is None:
            if len(self._scopes) >= MEMO_LIMIT:
                self._scopes.clear()
            known = self._scopes[scope_name] = self._for(scope_name)
        return known

    def _for(self, scope: str) -> ScopeReader:
        own = scope == OWN_SCOPE or scope.startswith(OWN_SCOPE + ".")
        rules = [
            rule for scopes, rules in self._rules if not scopes or any(each.fullmatch(scope) for each in scopes) for rule in rules
        ]
        return ScopeReader(rules, dropped=own)


def _compile(rule: Rule, table: ReadTable) -> _Compiled:
    value = None if rule.value == "*" else alternatives_of(rule.value)
    return _Compiled(rule, table, value, glob(rule.name) if rule.name else None)
