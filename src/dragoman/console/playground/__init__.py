"""The tools of the console's playground: those of the demonstration, and those of MCP servers."""
