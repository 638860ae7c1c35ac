"""Finds identifiers in tool calls that occur nowhere in the conversation."""
