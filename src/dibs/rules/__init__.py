"""The rules: what may happen to a task (`tasks`), to a lock on files (`locks`), and which paths overlap (`paths`). Pure
functions of rows and a time: no I/O, no clock, no store. Each rule is here, once."""
