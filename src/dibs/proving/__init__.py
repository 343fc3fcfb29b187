"""Trying what is configured instead of believing it: `dibs doctor --prove`.

    found = configured.read("claude", root)         what the client's files say; runs nothing
    proofs = trial.prove(board, root)               everything tried, for every client and the git guard

A worker of its own locks a path that does not exist, for a minute at most. Each client's MCP server is then started
as configured and asked for a few things, and each client's hook gets the events that the client would send it: edits of
the held path, which it must deny, and of a free one, which it must not. Nothing is written but that lock.

Only commands that are recognisably those of dibs are run, and so that nothing in the repository can take their place
(`trusted`). A crash leaves the lock, which counts no longer than the process of its worker, or its lease; servers
end when their input does.
"""
