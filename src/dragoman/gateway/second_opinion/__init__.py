"""Second responses from several samples, or from another model, where the guard rejects the first."""
