"""What is known of models, as data: weights, formats, limits, each with its source."""
