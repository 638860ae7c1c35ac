"""Replaces the configuration of a running gateway: what triggers it, and what requests see of it."""
