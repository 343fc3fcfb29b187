"""A runner turns a prompt into a command: which program with which arguments, environment, files and input.

    runner = make_runner("claude", model="…", args=["--max-turns", "50"])
    runner.check()                     Unsupported, with what to install, if it cannot run here
    launch = runner.launch(order)      written into order.folder: whatever files the client wants
    launch.argv, launch.env, launch.stdin

A runner starts nothing itself and knows nothing of boards; the pool does the rest.
"""

from dibs.pool.runners.base import Launch as Launch
from dibs.pool.runners.base import Order as Order
from dibs.pool.runners.base import Runner as Runner
from dibs.pool.runners.making import make_runner as make_runner
