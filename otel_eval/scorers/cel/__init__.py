"""Expressions in CEL, the Common Expression Language, over what a run recorded.

An expression is checked once and evaluated on many runs. The implementation comes with the extra `cel` and is loaded only
where an expression is.
"""
