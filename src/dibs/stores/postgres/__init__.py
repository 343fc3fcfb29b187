"""Boards in a PostgreSQL database, for workers on many machines. `store` is the way in; nothing here is imported
unless a board's address asks for it."""
