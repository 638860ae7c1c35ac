"""Tool calls with models whose text is parsed by Dragoman."""
