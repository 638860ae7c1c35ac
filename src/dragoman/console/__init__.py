"""The console: a page that shows what the gateway does."""
