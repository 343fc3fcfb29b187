"""The board as an MCP server, for coding agents: ten tools, two resources, one prompt.

`tools` says what can be called, `work` and `sharing` call the board, `answers` gives its words their shape, `server`
speaks the protocol, `seat` is the worker that a client has here, `stdio` and `http` are the two ways to be reached.
Only `dibs mcp` loads any of this: the SDK costs more to import than everything else together.
"""
