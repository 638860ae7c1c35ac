"""Thirty tasks of several steps with tools that check their arguments, on several programs with the same model."""
