"""Requests as plain turns or prompt text, and what is cut from them for small models."""
