"""Captured exchanges: recorded, stored, loaded, replayed, compared and bundled."""
