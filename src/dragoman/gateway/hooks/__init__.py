"""Hooks of other packages: they change or refuse requests, refuse tool calls, and observe responses and errors."""
