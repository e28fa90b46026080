"""Spans from a Kafka topic: offsets are committed when what was read before them is scored and delivered."""
