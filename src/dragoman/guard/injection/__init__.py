"""Detects tool calls that were copied from untrusted content."""
