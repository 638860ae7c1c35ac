"""Upstream servers that speak one of the three APIs over HTTP."""
