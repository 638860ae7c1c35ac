"""Removes secrets and personal text from captures."""
