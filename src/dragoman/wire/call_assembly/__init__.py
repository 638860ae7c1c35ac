"""Tool calls from the chunks of upstream servers."""
