"""Responses that clients can continue."""
