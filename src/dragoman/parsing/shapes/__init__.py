"""The notations of tool calls that formats share, one module each."""
