"""What the gateway runs for vendor tools: an executor for each kind of tool, built from the settings."""
