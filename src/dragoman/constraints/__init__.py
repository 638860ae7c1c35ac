"""Constrained decoding: one grammar, written in the notation of each engine."""
