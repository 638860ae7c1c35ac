"""Runs tools that an API's vendor would run on its own servers."""
