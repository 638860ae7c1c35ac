"""Backends that run in one process and answer the requests of several gateway processes."""
