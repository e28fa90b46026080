"""Expected calls against actual ones: which belong together, and how much each pair weighs.

`arguments` compares calls, `align` aligns them and explains the differences.
"""
