"""Sources of replies. Apart from the server, only these packages do network I/O."""
