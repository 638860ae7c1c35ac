"""Real tool calls between any agent and any model."""

__version__ = "0.1.0"
