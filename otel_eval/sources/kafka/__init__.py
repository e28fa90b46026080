"""Read spans from a Kafka topic; an offset is committed when the traces of all records before it
are scored and delivered.
"""
