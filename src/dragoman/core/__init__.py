"""Values, events and machines that everything else is made of: no I/O, no clock, no randomness."""
