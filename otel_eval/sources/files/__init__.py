"""Stored traces: files of OTLP, Tempo and Jaeger, plain or gzipped, read into the same batches as live ones."""
