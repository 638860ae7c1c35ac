"""Upstream servers, reached over HTTP by any of the three APIs."""
