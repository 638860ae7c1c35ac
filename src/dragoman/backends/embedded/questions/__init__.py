"""Questions to the embedded model with a few possible answers, decided by token probabilities."""
