"""Clients of MCP servers: started on first use, restarted after a crash, ended with the gateway."""
