"""What the dialects of all APIs share: SSE, translation, errors, passthrough."""
