"""Warm prefixes: the engine's state after an agent's constant prompt prefix, kept in files between runs.

A prompt of an agent begins with its system text and tools, thousands of tokens that are the same in each run. They are
read alone, saved before the conversation is read, and restored at the next start in a fraction of a second.
"""
