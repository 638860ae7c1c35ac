"""Upstream servers, models and settings: their state, and the actions probe, load, unload and pull."""
