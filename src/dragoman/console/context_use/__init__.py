"""What fills the context window: tokens by part of a request, over a session, and what trimming removes."""
