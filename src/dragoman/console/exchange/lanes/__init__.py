"""The four lanes of an exchange, from the files of its capture."""
