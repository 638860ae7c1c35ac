"""Tasks of τ²-bench for an agent without a user: tau2's own tools and its own judge of the resulting database."""
