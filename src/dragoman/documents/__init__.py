"""Documents as text and images, for models that cannot read the files themselves."""
