"""Response templates of Hugging Face: a tokenizer's own description of how to read its model's replies."""
