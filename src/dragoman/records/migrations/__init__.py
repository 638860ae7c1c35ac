"""The revisions of the tables, which Alembic applies in order.

`alembic revision` is not used: a revision is a file in `versions` whose name begins with its number. Its code names
tables and columns literally, because `schema` describes only the newest form.
"""
