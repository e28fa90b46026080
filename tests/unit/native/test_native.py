"""The extension in C against the decoder in Python: over any bytes both give the same, or both
refuse.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from otel_eval.interfaces import Wanted
from otel_eval.otlp import decoded_size
from otel_eval.otlp import protobuf as framing
from otel_eval.otlp.protobuf import UNLIMITED
from otel_eval.otlp.spans import NATIVE, OtlpSpanReader, decode, events_of
from otel_eval.sources.inprocess import sdk_spans
from otel_eval.wire import sized, varint

extension = pytest.importorskip("otel_eval._native", reason="installed without a compiler")
if not NATIVE:
    extension.configure(OtlpSpanReader, events_of, decode, DecodeError)

KEYS = (
    b"gen_ai.tool.name",
    b"input.value",
    b"k",
    b"",
    b"k\xff",
    b"\xff",
    "ключ".encode(),
    b"k" * 130,
    b"llm.input.0.role",
)
ASKED = (
    Wanted(frozenset({"gen_ai.tool.name", "k", "ключ"})),
    Wanted(frozenset({"input.value", "k" * 130}), ("llm.", "k")),
    Wanted(frozenset(), ("",)),
    Wanted(frozenset()),
)

BYTES = st.binary(max_size=20)
TEXTS = st.one_of(st.text(max_size=12).map(str.encode), BYTES)
NUMBERS = st.one_of(st.integers(0, 3), st.integers(0, 2**64 - 1)).map(varint)


def field(
    numbers: st.SearchStrategy[int], content: st.SearchStrategy[bytes]
) -> st.SearchStrategy[bytes]:
    """A length-delimited field."""
    return st.builds(sized, numbers, content)


PLAIN = st.one_of(
    st.just(b""),
    field(st.just(1), TEXTS),
    st.sampled_from([b"\x10\x00", b"\x10\x01", b"\x10\x02", b"\x10\x81\x01"]),
    NUMBERS.map(lambda number: b"\x18" + number),
    st.binary(min_size=8, max_size=8).map(lambda number: b"\x21" + number),
    field(st.just(7), BYTES),
)
LISTED = st.lists(field(st.just(1), PLAIN), max_size=3).map(b"".join)
MAPPED = st.lists(field(st.just(1), field(st.just(1), st.sampled_from(KEYS))), max_size=2).map(
    b"".join
)
VALUES = st.one_of(
    PLAIN,
    PLAIN,
    field(st.just(5), LISTED),
    field(st.just(6), MAPPED),
    BYTES,
    st.tuples(PLAIN, PLAIN).map(b"".join),
)
KEY = field(st.just(1), st.sampled_from(KEYS))
VALUE = field(st.just(2), VALUES)
PAIRS = st.one_of(
    st.tuples(KEY, VALUE),
    st.tuples(KEY),
    st.tuples(VALUE, KEY),
    st.tuples(KEY, VALUE, VALUE),
    st.tuples(BYTES),
).map(b"".join)
STATUS = st.lists(
    st.one_of(field(st.just(2), TEXTS), NUMBERS.map(lambda code: b"\x18" + code), BYTES), max_size=3
).map(b"".join)
IDS = st.sampled_from([b"t" * 16, bytes(16), b"s" * 8, bytes(8), b"", b"short"])
FIELDS = st.one_of(
    field(st.just(9), PAIRS),
    field(st.just(5), TEXTS),
    field(st.just(15), STATUS),
    field(st.just(11), BYTES),
    field(st.sampled_from([1, 2, 3, 4, 13, 17]), IDS),
    st.tuples(st.sampled_from([b"\x30", b"\x50", b"\x60", b"\x70", b"\x88\x01"]), NUMBERS).map(
        b"".join
    ),
    st.tuples(st.sampled_from([b"\x39", b"\x41"]), st.binary(min_size=8, max_size=8)).map(b"".join),
    st.just(b"\x85\x01\x00\x03\x00\x00"),
)
ORDERLY = st.lists(field(st.just(9), st.tuples(KEY, VALUE).map(b"".join)), max_size=6).map(b"".join)
SPANS = st.one_of(
    st.tuples(
        st.just(sized(1, b"t" * 16) + sized(2, b"s" * 8) + b"\x30\x01"),
        ORDERLY,
        field(st.just(15), STATUS),
    ).map(b"".join),
    st.lists(FIELDS, max_size=8).map(b"".join),
    st.binary(max_size=60),
)


@st.composite
def spoilt(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """The bytes, or the bytes with a few of them changed, cut out or put in."""
    given_bytes = bytearray(draw(whole))
    for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
        at = draw(st.integers(0, len(given_bytes)))
        given_bytes[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
    return bytes(given_bytes)


def contents(make: Any, payload: bytes) -> Any:
    """Everything that a view of the span tells, or that there is none."""
    try:
        view = make(payload)
    except DecodeError:
        return DecodeError
    plain = (
        view.name,
        view.span_kind,
        view.start_ns,
        view.end_ns,
        view.status_code,
        view.status_message,
    )
    return (
        *plain,
        [repr(sorted(view.attributes(each).items())) for each in ASKED],
        list(view.events()),
    )


@given(spoilt(SPANS))
@example(b"")
@example(b"\x4a\x80")
@example(b"\x4a" + b"\xff" * 9 + b"\x01")
@example(sized(9, sized(1, b"k") + sized(2, b"\x10\x01")) * 2)
def test_python_and_the_extension_read_a_span_alike(payload: bytes) -> None:
    """Names, times, status, attributes by key and by prefix, events: whatever the bytes are."""
    assert contents(extension.view, payload) == contents(OtlpSpanReader, payload)


@given(spoilt(SPANS), spoilt(SPANS))
def test_equal_fingerprints_are_equal_attributes(one: bytes, other: bytes) -> None:
    """So that a span may be recognised by its bytes."""
    try:
        views = [extension.view(payload) for payload in (one, other)]
    except DecodeError:
        return
    for wanted in ASKED:
        marks = {
            view.fingerprint(wanted) if isinstance(view, type(extension.view(b""))) else None
            for view in views
        }
        if len(marks) == 1 and None not in marks:
            assert repr(views[0].attributes(wanted)) == repr(views[1].attributes(wanted))


def test_fingerprints_tell_values_apart() -> None:
    """And leave out what was not requested."""
    wanted = Wanted(frozenset({"k"}))

    def mark(value: bytes, other: bytes = b"x") -> Any:
        pairs = (
            sized(9, sized(1, b"k") + sized(2, sized(1, value))),
            sized(9, sized(1, b"o") + sized(2, sized(1, other))),
        )
        return extension.view(b"".join(pairs)).fingerprint(wanted)

    assert mark(b"a") != mark(b"b")
    assert mark(b"a", b"x") == mark(b"a", b"y")


@pytest.mark.parametrize(
    "names",
    [("a", "b"), ("", "a"), ("a", "a\x4a\x08\x0a\x01k\x12\x03\x0a\x01a"), ("n" * 200, "n" * 201)],
)
def test_a_named_fingerprint_tells_names_apart(names: tuple[str, str]) -> None:
    """Also a name that reads like an attribute; without `named` the name is left out."""
    pair = sized(9, sized(1, b"k") + sized(2, sized(1, b"a")))
    bare, plain = (
        extension.view(pair * number + sized(5, name.encode()))
        for number, name in zip((0, 1), names, strict=True)
    )
    same, other = (extension.view(pair + sized(5, name.encode())) for name in names)
    keys = frozenset({"k"})
    assert (
        same.fingerprint(Wanted(keys))
        == other.fingerprint(Wanted(keys))
        != bare.fingerprint(Wanted(keys))
    )
    assert len({view.fingerprint(Wanted(keys, named=True)) for view in (same, other, bare)}) == 3
    assert plain.fingerprint(Wanted(keys, named=True)) == other.fingerprint(
        Wanted(keys, named=True)
    )


RECORDED = st.dictionaries(
    st.one_of(st.sampled_from(KEYS).map(lambda key: key.decode("utf-8", "replace")), st.text()),
    st.one_of(
        st.text(max_size=80),
        st.integers(),
        st.floats(),
        st.booleans(),
        st.none(),
        st.binary(max_size=80),
        st.tuples(st.text(max_size=3)),
    ),
)
MARKED = (
    Wanted(frozenset({"gen_ai.tool.name", "k"}), presence=frozenset({"k"}), named=True),
    Wanted(frozenset({"k", "", "ключ"}), short=True),
)


@given(RECORDED)
@example({"k": "x" * 65, "gen_ai.tool.name": 2**63})
@example({"k": -(2**63), "\udcff": "key"})
def test_python_and_the_extension_read_attributes_of_this_process_alike(
    attributes: dict[str, Any],
) -> None:
    """Unless the extension leaves it to Python."""
    for wanted in (*ASKED, *MARKED):
        chosen = extension.wanted_of(attributes, wanted)
        if chosen is not None:
            assert repr(chosen) == repr(sdk_spans._wanted(attributes, wanted))
        fingerprints = [
            read(attributes, wanted, "run")
            for read in (extension.fingerprint_of, sdk_spans._fingerprint_of)
        ]
        assert repr(fingerprints[0]) == repr(fingerprints[1])
    size = extension.size_of_attributes(attributes)
    has_others = any(value is None or isinstance(value, tuple) for value in attributes.values())
    assert size == (None if has_others else sdk_spans._size_in_python(attributes))


def test_plain_attributes_of_this_process_are_read_by_the_extension() -> None:
    """Otherwise nothing above would say anything."""
    attributes = {"k": "text", "ключ": 5, "o": ("other",)}
    assert extension.wanted_of(attributes, ASKED[0]) == {"k": "text", "ключ": 5}


USABLE = st.tuples(
    st.sampled_from([sized(1, b"t" * 16), sized(1, b"u" * 16)]),
    st.sampled_from([sized(2, b"s" * 8), sized(2, b"r" * 8)]),
    st.sampled_from([b"", sized(4, b"p" * 8), sized(4, b"")]),
    ORDERLY,
).map(b"".join)
SCOPE = st.sampled_from(
    [b"", sized(1, sized(1, b"agent")), sized(1, sized(1, b"otel_eval")), sized(1, b"\xff")]
)
MEMBERS = st.lists(
    st.one_of(field(st.just(2), st.one_of(USABLE, USABLE, SPANS)), field(st.just(3), BYTES)),
    max_size=4,
)
SCOPES = st.lists(
    field(st.just(2), st.tuples(SCOPE, MEMBERS.map(b"".join)).map(b"".join)), max_size=2
).map(b"".join)
RESOURCE = st.sampled_from(
    [b"", sized(1, b""), sized(1, sized(1, sized(1, b"service.name") + sized(2, sized(1, b"bot"))))]
)
GROUPS = st.tuples(RESOURCE, SCOPES).map(b"".join)
BODIES = st.lists(field(st.just(1), GROUPS), max_size=3).map(b"".join)


@given(spoilt(BODIES))
@example(b"\x0a\x00")
@example(b"\x0a\x7f")
def test_python_and_the_extension_frame_a_request_alike(body: bytes) -> None:
    """Where the extension frames a request at all, it frames what Python does."""
    found = framing._shortcut(body, UNLIMITED)
    if found is not None:
        whole = framing._read_by_protobuf(body)
        assert (whole.rejected, whole.own) == (0, found.own)
        assert found.spans == whole.spans


def test_a_resource_in_two_parts_is_read_as_python_reads_it() -> None:
    """The first part alone is corrupt; Python joins the parts of a field before it decodes them."""
    resource = sized(1, sized(1, b"service.name") + sized(2, sized(1, b"bot")))
    span = sized(1, b"t" * 16) + sized(2, b"s" * 8)
    body = sized(1, sized(1, resource[:5]) + sized(2, sized(2, span)) + sized(1, resource[5:]))
    assert framing._shortcut(body, UNLIMITED) is None
    assert framing.read_traces(body).spans == framing._read_by_protobuf(body).spans != []


def test_an_ordinary_request_is_framed_by_the_extension() -> None:
    """Otherwise nothing above would say anything."""
    span = sized(1, b"t" * 16) + sized(2, b"s" * 8) + sized(5, b"chat")
    body = sized(1, sized(1, b"") + sized(2, sized(1, sized(1, b"agent")) + sized(2, span)))
    [(resource_scope, spans)] = extension.frame(body, framing.resource_scope, UNLIMITED)
    assert resource_scope.scope_name == "agent"
    assert spans == [(b"t" * 16, b"s" * 8, (b"", span, resource_scope), len(span))]


def test_wanted_sets_without_number_are_no_trouble() -> None:
    """What is remembered of each is given up for the next, also while Python reads a value in
    between.
    """
    payload = sized(9, sized(1, b"k") + sized(2, sized(5, sized(1, sized(1, b"x")))))
    view = extension.view(payload)
    assert all(
        view.attributes(Wanted(frozenset({"k", f"o{number}"}))) == {"k": ["x"]}
        for number in range(2000)
    )


@pytest.mark.parametrize("unusable", [object(), None, 1])
def test_an_invalid_set_of_keys_is_an_error(unusable: Any) -> None:
    """As in Python, and not a crash."""
    with pytest.raises(AttributeError):
        extension.view(sized(9, sized(1, b"k") + sized(2, b""))).attributes(unusable)


def test_one_variable_of_the_environment_does_without_it() -> None:
    """For comparing, and for doubting."""
    program = "from otel_eval.otlp.spans import NATIVE; print(NATIVE)"
    said = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "OTEL_EVAL_PURE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == "False"


def test_a_second_import_in_the_same_interpreter_works() -> None:
    """As after a test runner forgot the modules of the package."""
    script = (
        "import sys, otel_eval._native as first; del sys.modules['otel_eval._native']\n"
        "import otel_eval._native as second; print(second is not first, callable(second.view))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "True"]


@given(st.lists(st.sampled_from(b"*2\0\n[{:,JZjx")).map(bytes))
def test_content_weighs_the_same(body: bytes) -> None:
    """Each byte by itself, and what may be a list or a map."""
    nested = sum(len(pattern.findall(body)) for pattern in decoded_size._LISTS_AND_MAPS)
    costs, cost = decoded_size._NATIVE_COSTS, decoded_size._NESTED
    plain = sum(map(costs.__getitem__, body)) + nested * cost
    assert extension.content_size(body, costs, cost) == plain
