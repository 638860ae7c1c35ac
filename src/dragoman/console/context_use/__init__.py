"""What fills the context window of a request: tokens by part, over the turns of a session, and what trimming removes."""
