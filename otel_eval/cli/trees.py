"""Draw the decision trees of a configuration."""

from __future__ import annotations

from otel_eval.config import EvalConfig
from otel_eval.errors import ConfigError, did_you_mean, redacted_repr
from otel_eval.scorers.dag import Dag
from otel_eval.scorers.judge import any_judge_name

__all__ = ["drawings"]


def drawings(config: EvalConfig, evaluation: str | None = None, scorer: str | None = None) -> str:
    """All decision trees as Mermaid flowcharts, each after a comment with the names of its evaluation and scorer.

    Args:
        config: the configuration.
        evaluation, scorer: only trees with these names; None for any.

    Raises:
        ConfigError: there is no such tree.
    """
    with any_judge_name():  # judges are built for their names only, and not called
        built = [(each.name, scorer) for each in config.evaluations for scorer in each.build()]
    trees = {(of, tree.name): tree.drawing() for of, tree in built if isinstance(tree, Dag)}
    _check_name("--evaluation", evaluation, [name for name, _ in trees])
    _check_name("--scorer", scorer, [name for _, name in trees])
    wanted = [key for key in trees if evaluation in (None, key[0]) and scorer in (None, key[1])]
    if not wanted:
        raise ConfigError("there is no scorer of type dag; add one, see docs/reference/dag.md")
    return "\n".join(f"%% {_comment(name)} / {_comment(of)}\n{trees[name, of]}" for name, of in wanted)


def _comment(name: str) -> str:
    """The name on one line and without `%%{`: Mermaid executes directives in comments too."""
    return " ".join(name.split()).replace("%%{", "%% {")


def _check_name(option: str, name: str | None, known: list[str]) -> None:
    """Raise if a name was given and no tree has it."""
    if name is not None and known and name not in known:
        raise ConfigError(f"{option}: {redacted_repr(name)} has no decision tree; {did_you_mean(name, known)}")
