"""A standalone OTLP receiver: gRPC and HTTP in front of one consumer."""
