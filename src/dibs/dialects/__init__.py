"""The five plain-file protocols: formats, guards and policies."""
