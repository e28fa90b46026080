"""The composition root: builds the parts that a configuration names, and connects them. Only it may
import every other package.
"""
