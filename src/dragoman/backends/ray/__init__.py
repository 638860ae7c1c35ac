"""Settings of models that run on a Ray cluster; `dragoman.ray_serve` runs them."""
