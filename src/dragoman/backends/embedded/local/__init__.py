"""The models on this machine: where their files are (`stores`), their names (`files`), which are loaded (`pool`)."""
