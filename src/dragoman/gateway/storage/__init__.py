"""Responses that clients can continue, in memory or in SQLite."""
