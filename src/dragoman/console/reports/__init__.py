"""Reports of the console: recorded exchanges over time, what fails most, and API keys with their use."""
