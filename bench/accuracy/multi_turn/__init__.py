"""Tasks of several turns of the Berkeley Function Calling Leaderboard, with its simulated tools and its checker."""
