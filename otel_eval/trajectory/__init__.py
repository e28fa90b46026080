"""From the spans of a closed trace to the trajectories of its agent runs.

The modules, in the order in which a trace passes through them: `classify` (parent links, and what
each span is), `runs` (which spans are runs, and whether their evidence is complete), `tool_calls`
and `deduplicate` (tool spans to calls), `messages` and `pairing` (what messages add),
`unknown_calls` (whether calls left no trace), `run_attributes`, `builder` (all of it),
`explanation` (the same decisions with their reasons).
"""
