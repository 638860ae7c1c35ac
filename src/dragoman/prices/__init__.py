"""Prices of models, and what a response costs."""
