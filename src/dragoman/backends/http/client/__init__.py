"""HTTP/1.1 client for upstream servers, over asyncio and httptools."""
