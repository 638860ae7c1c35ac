"""The console: a web page that shows what a gateway does, and why a call was made or not (docs/console.md)."""
