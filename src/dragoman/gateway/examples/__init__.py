"""Examples of tool calls for small models: calls that worked in earlier conversations of the same API key."""
