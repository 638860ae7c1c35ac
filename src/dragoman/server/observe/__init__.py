"""What is observed of each exchange: access log, debug log, metrics. None of it changes the exchange."""
