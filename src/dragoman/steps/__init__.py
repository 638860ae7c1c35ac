"""Steps: tools that the model must call before it ends a turn, in an order or by prerequisites."""
