"""Data about models and servers: TOML files and what reads them."""
