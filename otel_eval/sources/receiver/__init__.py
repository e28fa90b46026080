"""The standalone OTLP receiver: gRPC and HTTP servers that pass requests to one consumer."""
