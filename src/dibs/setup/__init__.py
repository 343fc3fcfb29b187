"""Connecting a coding client to the board: its MCP configuration, its hooks, a few lines of advice, the git guard.

    plan = plans.install(client, place, options)    what every file would become; nothing is written
    plan = plans.remove(client, place)              the same for taking it out
    plan.write()                                    each file whole or not at all, folders made or removed as needed

Files are edited as text (`jsonedit`, `blocks`), so that everything in them that is not ours keeps its bytes. Nothing is
remembered elsewhere: what setup wrote is recognised by what it says, in any clone and after any edit. `clients` says
what each client reads, and reads back what is configured, for whoever wants to try it.

All files are planned before the first is written, and one that cannot be understood stops everything. A crash between
two writes leaves whole files, some as before and some as planned; the same command again completes it.
"""
