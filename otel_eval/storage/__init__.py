"""The journal: what was accepted, decided and delivered, on disk before it is acknowledged."""
