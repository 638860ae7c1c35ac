"""Measurements of speed and memory: `python -m bench [name …] [--quick] [--json FILE]`. See docs/performance.md."""
