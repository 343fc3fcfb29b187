#!/bin/sh
# A planner, worker or integrator (by HAND_NAME's first word) by document 000: board.json, edited under board.lock.
#
# A planner creates board.json from the file HAND_PLAN. A worker claims open tasks whose dependencies are done or
# integrated and marks them done. An integrator marks done tasks integrated until none is left.
#
# Further settings: HAND_PAUSE (the document's 2 s), HAND_RETRIES (its 5), HAND_STALE (its 60 s), HAND_CREATE (ln, the
# default, or noclobber).
# Points to die at: locked (nothing changed), written (board written, lock still there), claimed (at work).
#
# Where the document itself races:
# - "Check if it exists … create" lets two workers in. Creation here is exclusive, by ln of a finished file. With
#   noclobber the file is empty for an instant, which nobody may take for malformed at once; this script looks into a
#   lock only after all retries, and twice.
# - "Delete the stale lock, proceed": of two who found the same stale lock, the second deletes the first one's new
#   lock, and both are in. Nothing that a hand does with rm can prevent it; HAND_BREAKING=never leaves it to others.
# - The lock is deleted at the end without asking whose it is, as the document says.

HAND_PAUSE=${HAND_PAUSE:-2}
HAND_RETRIES=${HAND_RETRIES:-5}
HAND_STALE=${HAND_STALE:-60}
HAND_CREATE=${HAND_CREATE:-ln}
. "${0%/*}/common.sh"

board=$HAND_DIR/board.json
lock=$HAND_DIR/board.lock
held=0

release() {
    if [ "$held" = 1 ]; then
        held=0
        rm -f "$lock"
    fi
}

# "You MUST delete the lock file even if an error occurs during write."
trap release EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

create_lock() {
    text=$(printf '{\n  "agent": "%s",\n  "ts": "%s"\n}' "$HAND_NAME" "$(date -Iseconds)")
    if [ "$HAND_CREATE" = noclobber ]; then
        (set -C && printf '%s\n' "$text" >"$lock") 2>/dev/null || return 1
    else
        printf '%s\n' "$text" >"$lock.$HAND_NAME"
        ln "$lock.$HAND_NAME" "$lock" 2>/dev/null
        made=$?
        rm -f "$lock.$HAND_NAME"
        [ "$made" = 0 ] || return 1
    fi
    held=1
}

stale_or_malformed() { # the lock that is still there after the last retry; one that has just gone is neither
    content=$(cat "$lock" 2>/dev/null) || return 1
    ts=$(printf '%s\n' "$content" | sed -n 's/.*"ts": *"\([^"]*\)".*/\1/p')
    since=
    if [ -n "$ts" ]; then since=$(date -d "$ts" +%s 2>/dev/null); fi
    if [ -z "$since" ]; then
        # Its maker may be between creating and writing it: malformed is what stays so.
        sleep "$HAND_PAUSE"
        [ "$(cat "$lock" 2>/dev/null || echo gone)" = "$content" ]
        return
    fi
    [ $(($(date +%s) - since)) -gt "$HAND_STALE" ]
}

acquire() {
    tries=0
    while :; do
        # 1. Check if the lock exists.  4. Create it.
        if [ ! -e "$lock" ] && create_lock; then return 0; fi
        # 2. If yes, wait, retry. Maximum 5 retries.
        [ "$tries" -lt "$HAND_RETRIES" ] || break
        tries=$((tries + 1))
        sleep "$HAND_PAUSE"
    done
    # 3. Still there: older than 60 seconds, or without ts: delete it, proceed to step 4. Recent: abort.
    if [ "$HAND_BREAKING" != never ] && stale_or_malformed; then
        note broke board.lock
        rm -f "$lock"
        if create_lock; then return 0; fi
    elif [ ! -e "$lock" ] && create_lock; then
        return 0
    fi
    note abort board.lock
    echo "Board is locked by another agent. Cannot proceed." >&2
    return 1
}

wait_to_read() { # read-only access: wait while there is a lock; a stale one is deleted
    tries=0
    while [ -e "$lock" ] && [ "$tries" -lt "$HAND_RETRIES" ]; do
        tries=$((tries + 1))
        sleep "$HAND_PAUSE"
    done
    if [ -e "$lock" ] && [ "$HAND_BREAKING" != never ] && stale_or_malformed; then
        note broke board.lock
        rm -f "$lock"
    fi
}

# shellcheck disable=SC2016
program='
import json, os, sys
path, temporary, agent, now, verb, task_id = sys.argv[1:]
# 5. Read board.json.  6. Note the current version.
with open(path, encoding="utf-8") as file:
    board = json.load(file)
tasks = board["tasks"]
answer = ""
# 7. Make the changes in memory.
if verb == "claim":
    met = {task["id"] for task in tasks if task["status"] in ("done", "integrated")}
    free = [task for task in tasks if task["status"] == "open" and met.issuperset(task["depends_on"])]
    if free:
        free[0].update(status="claimed", claimed_by=agent, claimed_at=now)
        answer = "claimed " + free[0]["id"]
elif verb == "done":
    task = next(task for task in tasks if task["id"] == task_id)
    if (task["status"], task["claimed_by"]) == ("claimed", agent):
        task.update(status="done", done_at=now)
        answer = "done"
else:
    ready = [task for task in tasks if task["status"] == "done"]
    if ready:
        ready[0]["status"] = "integrated"
        answer = "integrated " + ready[0]["id"]
if answer:
    # 8. Increment version by 1.
    board["version"] += 1
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(json.dumps(board, indent=2, ensure_ascii=False) + "\n")
print(answer or "nothing")
'

edit() { # verb task: sets answer
    [ -e "$board" ] || fail "board.json missing: only a planner may create it"
    acquire || return 1
    die_at locked
    temporary=$HAND_DIR/.board.json.$HAND_NAME
    cp -p "$board" "$temporary" || fail "cannot write $temporary" # with its permissions
    now=$(date -Iseconds)
    answer=$("${HAND_PYTHON:-python3}" -ISc "$program" "$board" "$temporary" "$HAND_NAME" "$now" "$1" "$2") ||
        fail "cannot edit $board"
    if [ "$answer" != nothing ]; then
        # 9. Write the modified data back.
        mv "$temporary" "$board" || fail "cannot write $board"
        die_at written
    else
        rm -f "$temporary"
    fi
    # 10. Immediately delete the lock.
    release
}

is_any() { # status: read-only access
    [ -e "$board" ] || fail "board.json missing: only a planner may create it"
    wait_to_read
    grep -q "\"status\": \"$1\"" "$board"
}

plan() {
    acquire || exit 1
    if [ ! -e "$board" ]; then
        cp "${HAND_PLAN:?}" "$HAND_DIR/.board.json.$HAND_NAME"
        mv "$HAND_DIR/.board.json.$HAND_NAME" "$board"
    fi
    release
}

claim_and_do() {
    while is_any open || { [ "$HAND_STAY" = 1 ] && is_any claimed; }; do
        if ! edit claim '' || [ "$answer" = nothing ]; then
            rest
            continue
        fi
        task=${answer#claimed }
        note claim "$task"
        not_tired
        die_at claimed
        work
        note end "$task"
        until edit 'done' "$task"; do rest; done
        if [ "$answer" = 'done' ]; then note 'done' "$task"; else note lost "$task"; fi
    done
}

integrate() {
    while is_any open || is_any claimed || is_any 'done'; do
        if is_any 'done' && edit integrate '' && [ "$answer" != nothing ]; then
            note integrated "${answer#integrated }"
            not_tired
        else
            rest
        fi
    done
}

case $HAND_NAME in
planner-*) plan ;;
integrator-*) integrate ;;
*) claim_and_do ;;
esac
