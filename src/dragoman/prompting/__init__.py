"""Requests as chat turns or prompt text, and prompt trimming for small models."""
