"""Incremental text: scanner, JSON streams, stop strings, escaping. Knows no model and no API."""
