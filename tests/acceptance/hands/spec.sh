#!/bin/sh
# An implementer by document 003: lock directories .locks/tasks/ID and .locks/files/NAME under HAND_DIR (the document's
# `spec`). `spec.sh clean AGENT…` is the orchestrator after those agents have returned: it releases what they left;
# `spec.sh clean` is the orchestrator after all have returned.
#
# The document has no list of tasks. Here tasks.txt has a line `ID PATH…` for each, and a finished one is a directory
# done/ID, made by mkdir; both belong to the test, not to the document.
#
# Further setting: HAND_RETRIES, the tries of the "brief retry" for a busy file lock.
# Points to die at: bare (task lock made, no owner in it), claimed (all locks held, at work), finished (done, locks
# still there).
#
# Where the document itself races: nowhere between workers, since nobody ever breaks a lock. A worker that dies between
# mkdir and the owner file leaves a lock that the orchestrator can only attribute once all have returned. The
# orchestrator looks who has a lock and then removes it by name: if somebody else gives it back in between, and it is
# taken again, it removes the lock of somebody who is alive. `cleaned` and `removed` in its report tell when that was.
# The document's `echo "$FILE_PATH"` would expand backslashes in a POSIX shell; printf is used instead.

HAND_PAUSE=${HAND_PAUSE:-0.02}
HAND_RETRIES=${HAND_RETRIES:-3}
. "${0%/*}/common.sh"

locks=$HAND_DIR/.locks

acquire_task() { # id: says ACQUIRED or BUSY
    mkdir -p "$locks/tasks" && mkdir "$locks/tasks/$1" 2>/dev/null
    if [ $? -eq 0 ]; then echo "ACQUIRED"; else echo "BUSY"; fi
}

lock_name() { # path: / and \ become __, : becomes _
    printf '%s\n' "$1" | sed 's/[\/\\]/__/g; s/:/_/g'
}

acquire_file() { # name: says ACQUIRED or BUSY
    mkdir -p "$locks/files" && mkdir "$locks/files/$1" 2>/dev/null
    if [ $? -eq 0 ]; then echo "ACQUIRED"; else echo "BUSY"; fi
}

write_owner() { # lock directory, task
    printf "agent: %s\ntask: %s\ntimestamp: %s\n" "$HAND_NAME" "$2" "$(date -Iseconds)" >"$1/owner"
}

release_all() { # the locks taken for one task, the files first
    for path in $taken; do
        note drop "$path"
        rm -rf "$locks/files/$(lock_name "$path")"
    done
    rm -rf "$locks/tasks/$1"
}

clean() { # agents that have returned; none named: all have
    if [ $# -eq 0 ]; then
        rm -rf "$locks"/tasks/* "$locks"/files/*
        return
    fi
    for owner in "$locks"/files/*/owner "$locks"/tasks/*/owner; do
        [ -e "$owner" ] || continue
        agent=$(sed -n 's/^agent: //p' "$owner" 2>/dev/null)
        for returned in "$@"; do
            if [ "$agent" = "$returned" ]; then
                lock=${owner%/owner}
                note cleaned "${lock#"$locks/"}"
                rm -rf "$lock"
                note removed "${lock#"$locks/"}"
            fi
        done
    done
}

implement() { # id path…: 1 if the task was busy or in conflict
    task=$1
    shift
    [ "$(acquire_task "$task")" = ACQUIRED ] || return 1
    die_at bare
    write_owner "$locks/tasks/$task" "$task"
    taken=
    # The list was read before the lock was taken: somebody may have finished the task in between.
    if [ -d "$HAND_DIR/done/$task" ]; then
        release_all "$task"
        return 1
    fi
    for wanted in "$@"; do
        name=$(lock_name "$wanted")
        tries=0
        while [ "$(acquire_file "$name")" = BUSY ]; do
            if [ "$tries" -ge "$HAND_RETRIES" ]; then
                # 1. Skip the task.  2. Note the conflict.  3. Release what was acquired for it.  4. Move on.
                note conflict "$task"
                release_all "$task"
                return 1
            fi
            tries=$((tries + 1))
            sleep "$HAND_PAUSE"
        done
        write_owner "$locks/files/$name" "$task"
        note hold "$wanted"
        taken="$taken $wanted"
    done
    note claim "$task"
    not_tired
    die_at claimed
    work
    note end "$task"
    if mkdir "$HAND_DIR/done/$task" 2>/dev/null; then note 'done' "$task"; else note twice "$task"; fi
    die_at finished
    release_all "$task"
}

if [ "${1:-}" = clean ]; then
    shift
    clean "$@"
    exit
fi

mkdir -p "$HAND_DIR/done"
while :; do
    left=0
    got=0
    while read -r task paths; do
        [ -d "$HAND_DIR/done/$task" ] && continue
        left=$((left + 1))
        # shellcheck disable=SC2086
        if implement "$task" $paths; then got=$((got + 1)); fi
    done <"$HAND_DIR/tasks.txt"
    [ "$left" -gt 0 ] || break
    [ "$got" -gt 0 ] || rest
done
