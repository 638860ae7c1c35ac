"""Calls without the tags of a format: in plain JSON, in code fences, and quoted as examples."""
