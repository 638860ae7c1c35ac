"""Secrets and personal text taken out of what is kept or sent."""
