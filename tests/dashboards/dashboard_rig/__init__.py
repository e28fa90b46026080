"""Real dashboards for tests: how they are installed, started, filled with traced runs, asked and
photographed.
"""
