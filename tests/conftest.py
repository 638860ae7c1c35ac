"""Shared by all tests."""

from hypothesis import settings

settings.register_profile("default", deadline=None, max_examples=200, derandomize=True)
settings.register_profile("fuzz", deadline=None, max_examples=20_000)
settings.load_profile("default")
