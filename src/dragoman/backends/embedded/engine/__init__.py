"""What runs llama.cpp and on which hardware: its settings, the user's llama-server, and what it reports of itself."""
