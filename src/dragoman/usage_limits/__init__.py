"""Rate limits, concurrency and budgets of API keys, and what each key has used."""
