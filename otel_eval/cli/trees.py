"""Draw the decision trees of a configuration."""

from __future__ import annotations

from otel_eval.config import EvalConfig
from otel_eval.errors import ConfigError
from otel_eval.scorers.dag import Dag
from otel_eval.scorers.judge import any_judge_name
from otel_eval.scorers.spec.parameters import did_you_mean, redacted_repr

__all__ = ["drawings"]


def drawings(config: EvalConfig, evaluation: str | None = None, scorer: str | None = None) -> str:
    """Every tree, each after a comment that names its evaluation and scorer, an empty line between two.

    Args:
        config: what is looked through.
        evaluation, scorer: the names to look for; None for any.

    Raises:
        ConfigError: there is no tree of these names.
    """
    with any_judge_name():  # nobody is asked anything
        built = [(each.name, scorer) for each in config.evaluations for scorer in each.build()]
    trees = {(of, tree.name): tree.drawing() for of, tree in built if isinstance(tree, Dag)}
    _there("--evaluation", evaluation, [name for name, _ in trees])
    _there("--scorer", scorer, [name for _, name in trees])
    wanted = [key for key in trees if evaluation in (None, key[0]) and scorer in (None, key[1])]
    if not wanted:
        raise ConfigError("there is no scorer of type dag; add one, see docs/reference/dag.md")
    return "\n".join(f"%% {_said(name)} / {_said(of)}\n{trees[name, of]}" for name, of in wanted)


def _said(name: str) -> str:
    """On one line, and no directive, which Mermaid obeys in a comment too."""
    return " ".join(name.split()).replace("%%{", "%% {")


def _there(option: str, name: str | None, known: list[str]) -> None:
    if name is not None and known and name not in known:
        raise ConfigError(f"{option}: {redacted_repr(name)} has no decision tree; {did_you_mean(name, known)}")
