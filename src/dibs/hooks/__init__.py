"""Edit enforcement: what a coding client is about to write, and whether somebody else holds it.

    events.read(client, document)   a client's hook event, as one Event: what kind, by whom, where, which paths
    shellwrites.writes(command, …)  the paths that a shell command certainly writes (`shellwords` parses it,
                                    `programs` and `gitwrites` know what each program writes)
    patches.paths(text)             the paths of an apply_patch
    verdict.who / conflicts / …     the worker behind an event, and what stands in its way
    answers.deny / warn / prime     the answer in the client's own form; there is none that allows
    git_guard.staged()              the same for clients without hooks: what a commit would record

The command `dibs hook` (dibs.cli.hooking) puts these together. Nothing here writes to a board except to renew, and to
give back at a session's end. A hook that is killed leaves nothing behind.
"""
