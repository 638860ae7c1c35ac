"""Incremental text: scanner, JSON streams, stop strings, escaping. Independent of models and APIs."""
