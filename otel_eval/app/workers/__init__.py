"""`otel-eval serve --workers N`: one process that receives requests, and N that evaluate traces."""
