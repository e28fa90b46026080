"""What holds of every tree: checked against a plain simulation of all ways, on random graphs."""

from __future__ import annotations

from itertools import product

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from otel_eval.errors import ConfigError
from otel_eval.model import Scored
from otel_eval.scorers import create_scorer
from otel_eval.testing import trajectory

NAMES = "abcdefg"


@st.composite
def graphs(draw):
    """Tasks and decisions whose edges lead on in the alphabet, so that there is no cycle; the first
    is the root.
    """
    size = draw(st.integers(2, len(NAMES)))
    graph = {}
    for at in range(size):
        later = NAMES[at + 1 : size]
        if later and draw(st.booleans()):
            graph[NAMES[at]] = draw(
                st.lists(st.sampled_from(later), min_size=1, max_size=3, unique=True)
            )
        else:
            ends = (
                st.one_of(st.sampled_from(later), st.integers(0, 10))
                if later
                else st.integers(0, 10)
            )
            graph[NAMES[at]] = (draw(ends), draw(ends))
    return graph


def spec_of(graph, order=None):
    nodes = {name: node_of(name, graph[name]) for name in order or graph}
    return {"type": "dag", "root": "a", "nodes": nodes}


def built(graph, order=None):
    """The scorer, or None if it is refused."""
    try:
        return create_scorer(spec_of(graph, order))
    except ConfigError:
        return None


def node_of(name, leads):
    if isinstance(leads, list):
        return {"type": "task", "cel": f"'{name}'", "children": leads}
    keys = [("score" if isinstance(end, int) else "then") for end in leads]
    children = [
        {"verdict": verdict, key: end}
        for verdict, key, end in zip((True, False), keys, leads, strict=True)
    ]
    return {"type": "binary", "cel": f"run.output.{name}", "children": children}


def simulated(graph, verdicts):
    """The scores reached, by the plain reading of the rules: run whatever may run until nothing
    more may.
    """
    gated = {
        end
        for leads in graph.values()
        if isinstance(leads, tuple)
        for end in leads
        if isinstance(end, str)
    }
    reads = {
        name: {task for task, leads in graph.items() if isinstance(leads, list) and name in leads}
        for name in graph
    }
    run, opened, scores = set(), set(), []
    while True:
        ready = [
            name
            for name in graph
            if name not in run
            and reads[name] <= run
            and (name == "a" or (name in opened if name in gated else bool(reads[name])))
        ]
        if not ready:
            return scores
        name = ready[0]
        run.add(name)
        if isinstance(graph[name], tuple):
            end = graph[name][0 if verdicts[name] else 1]
            scores.append(end) if isinstance(end, int) else opened.add(end)


def ways(graph):
    decisions = [name for name, leads in graph.items() if isinstance(leads, tuple)]
    for verdicts in product((True, False), repeat=len(decisions)):
        yield dict(zip(decisions, verdicts, strict=True))


def is_connected(graph):
    reached, waiting = {"a"}, ["a"]
    while waiting:
        new = {each for each in graph[waiting.pop()] if isinstance(each, str)} - reached
        reached |= new
        waiting += new
    return reached == {*graph}


@given(graphs())
def test_a_tree_is_refused_exactly_if_some_way_reaches_no_score_or_two(graph):
    """All verdicts of all decisions are tried."""
    good = is_connected(graph) and all(
        len(simulated(graph, verdicts)) == 1 for verdicts in ways(graph)
    )
    assert (built(graph) is not None) == good


@given(graphs().filter(is_connected), st.randoms(use_true_random=False))
@settings(suppress_health_check=[HealthCheck.filter_too_much])
def test_the_outcome_does_not_depend_on_the_order_of_the_nodes(graph, random):
    """The score is the simulation's, and the whole outcome the same however the nodes are
    shuffled.
    """
    order = [*graph]
    random.shuffle(order)
    scorer, shuffled = built(graph), built(graph, order)
    assume(scorer is not None)
    for verdicts in ways(graph):
        run = trajectory(output=dict.fromkeys(graph, False) | verdicts)
        outcome = scorer(run)
        assert isinstance(outcome, Scored)
        assert [outcome.value * 10] == simulated(graph, verdicts) or abs(
            outcome.value * 10 - simulated(graph, verdicts)[0]
        ) < 1e-9
        assert shuffled(run) == outcome
    assert shuffled.drawing() == scorer.drawing()
