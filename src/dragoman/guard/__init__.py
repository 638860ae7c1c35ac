"""Calls that are right: whether a call's arguments fit the schema of its tool, and what can be mended where not."""
