"""Delivers: queues that retry until an item is settled, and exporters side by side."""
