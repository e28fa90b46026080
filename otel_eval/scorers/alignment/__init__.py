"""Expected calls against actual ones: which belong together, and how much that weighs.

`relation` compares calls, `heaviest` aligns them, `explain` names the differences.
"""
