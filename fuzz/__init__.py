"""Mutation fuzzers with a time limit: `python -m fuzz.reader --seconds 60`, `python -m fuzz.requests --seconds 60`."""
