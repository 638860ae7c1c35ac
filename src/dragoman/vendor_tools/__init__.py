"""Tools that an API's vendor runs on its own servers, as values, and how an API shows them."""
