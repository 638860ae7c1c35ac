"""Plans requests to upstream servers, and plans them again without what a server rejects."""
