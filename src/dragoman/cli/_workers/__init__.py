"""`dragoman serve --workers N`: a supervisor, its gateway processes, and the process that runs the models."""
