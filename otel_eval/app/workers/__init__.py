"""`otel-eval serve --workers N`: one process that receives, N that evaluate."""
