"""The gateway over HTTP."""
