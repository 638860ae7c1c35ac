"""The page of the exchanges: those that were recorded, and those that run."""
