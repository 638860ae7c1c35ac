"""Where replies come from: the only I/O below the server."""
