"""The preorder of a trace's spans, against what a few lines of recursion say of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from otel_eval.interfaces import Frame
from otel_eval.span_trees import span_tree_of
from tests.support.made_spans import FakeResourceScope

IDS = [bytes([number]) * 8 for number in range(1, 9)]
SCOPE = FakeResourceScope("shop", "scope")
PARENTS = st.sampled_from([*IDS, *IDS, b"", bytes(8), b"\xee" * 8])


@st.composite
def any_frames(draw: st.DrawFn) -> dict[bytes, Frame]:
    """Spans with any links at all, circles and missing parents among them."""
    ids = draw(st.permutations(IDS))[: draw(st.integers(0, len(IDS)))]
    return {each: (draw(PARENTS), None, SCOPE) for each in ids}


def circles(frames: dict[bytes, Frame]) -> list[set[bytes]]:
    """Spans that are their own ancestors, by circle."""
    found = []
    for start in frames:
        walked, at = [], start
        while at in frames and at not in walked:
            walked.append(at)
            at = frames[at][0]
        if at == start and set(walked) not in found:
            found.append(set(walked))
    return found


@given(any_frames())
def test_every_span_stands_once_and_behind_its_parent(frames: dict[bytes, Frame]) -> None:
    """Unless it is a top: then its parent is missing, or it is the smallest id of a circle."""
    tree = span_tree_of(frames)
    assert sorted(tree.ids) == sorted(frames)
    smallest = {min(each) for each in circles(frames)}
    for place, (span_id, up) in enumerate(zip(tree.ids, tree.parent, strict=True)):
        parent = frames[span_id][0]
        if up < 0:
            assert place in tree.roots
            assert tree.missing[place] == (
                b"" if parent in (b"", bytes(8)) and parent not in frames else parent
            )
            assert parent not in frames or span_id in smallest
        else:
            assert up < place
            assert tree.ids[up] == parent
    assert len(tree.roots) == len(tree.missing)


@given(any_frames())
def test_a_subtree_is_a_range(frames: dict[bytes, Frame]) -> None:
    """From the span on, as many as it has descendants and itself."""
    tree = span_tree_of(frames)

    def descends(place: int, top: int) -> bool:
        return place == top or (tree.parent[place] >= 0 and descends(tree.parent[place], top))

    for top, size in enumerate(tree.size):
        assert [place for place in range(len(tree.ids)) if descends(place, top)] == list(
            range(top, top + size)
        )
    assert [tree.root_of(place) for place in tree.roots] == tree.roots
    assert all(descends(place, tree.root_of(place)) for place in range(len(tree.ids)))
