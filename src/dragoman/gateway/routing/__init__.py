"""Selecting the backend of a request."""
