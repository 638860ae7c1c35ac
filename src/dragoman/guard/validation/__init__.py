"""Validation of arguments against the JSON Schema of their tool, at a bounded cost."""
