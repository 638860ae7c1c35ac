"""Upstream servers for tests: real ones, recordings of real ones, and explicit fakes."""
