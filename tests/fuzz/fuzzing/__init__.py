"""Bytes of every form that may arrive, spoilt, and what must hold for each of them."""
