"""Data about models and servers in TOML files, and the code that loads it."""
