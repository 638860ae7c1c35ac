"""Documents as text and pictures, for models that cannot read the files themselves."""
