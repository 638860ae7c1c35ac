"""Servers that the tests put behind Dragoman: real ones, recordings of real ones, and fakes that say so."""
