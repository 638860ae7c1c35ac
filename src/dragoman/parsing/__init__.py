"""Model text to events: the parts that formats are made of."""
