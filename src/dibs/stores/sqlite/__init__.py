"""A board in a SQLite file: the default."""
