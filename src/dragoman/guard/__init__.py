"""Tool-call validation and repair: checks arguments against the schema of the tool, and repairs them if possible."""
