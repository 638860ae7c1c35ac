"""What learned examples change for a small model, with tools whose conventions are not in their schemas."""
