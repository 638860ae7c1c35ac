"""Totals of the recorded exchanges, for `dragoman report`."""
