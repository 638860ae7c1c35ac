"""JSON Schema as data: keywords, types of arguments, and schemas adapted to what a server accepts."""
