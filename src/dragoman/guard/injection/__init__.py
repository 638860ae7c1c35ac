"""Whether a tool call was copied from untrusted content."""
