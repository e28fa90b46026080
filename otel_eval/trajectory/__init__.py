"""From the spans of a closed trace to the trajectories of its agent runs.

The modules, in the order in which a trace passes through them: `classify` (parent links, and what
each span is), `runs` (which spans are runs, and whether their evidence is complete), `limits`
(which of them are too large to be read), `tool_calls` and `deduplicate` (tool spans to calls),
`messages` and `pairing` (what messages add), `recovery` (calls that left no span), `unknown_calls`
(whether calls left no trace), `run_attributes`, `builder` (all of it), `explanation` (the same
decisions with their reasons).
"""
