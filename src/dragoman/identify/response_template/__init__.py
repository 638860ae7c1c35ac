"""Hugging Face response templates: a tokenizer's own description of how its model's replies are read."""
