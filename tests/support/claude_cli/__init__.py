"""The claude CLI for tests: its recorded traces, how they are recorded, and a program that plays them."""
