"""Arguments written as elements within elements, and as values that name their types."""
