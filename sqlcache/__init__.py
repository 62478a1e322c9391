"""A caching proxy for SQL reads."""

__version__ = "0.1.0"
