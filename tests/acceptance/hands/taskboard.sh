#!/bin/sh
# A worker by document 004: taskboard.json, edited under flock on taskboard.lock.
#
# Further settings: HAND_STALE, the document's stale_timeout in seconds; without it nothing is swept. HAND_WRITE=rename
# writes a temporary file and renames it, for tests that kill at random and want to go on.
# Points to die at: locked (holding the lock, nothing changed), torn (half of the file written), claimed (at work).
#
# JSON is edited by python3 with its json module alone and written in place, both as the document's own program does: a
# worker that dies in the middle of it leaves a torn file. Like that program, `complete` does not ask who holds a task:
# a worker that was swept can still complete it.

HAND_PAUSE=${HAND_PAUSE:-0.02}
. "${0%/*}/common.sh"

# shellcheck disable=SC2016
program='
import json, os, sys, time
path, agent, verb, task_id = sys.argv[1:]
with open(path) as file:
    data = json.load(file)
tasks = data["tasks"]
now = time.time()
changed = False
if verb == "claim":
    # "every claim() call sweeps for stale tasks": assigned_to and claimed_at cleared, back to pending.
    stale = os.environ.get("HAND_STALE")
    for task in tasks:
        if stale and task["status"] == "in_progress" and task["claimed_at"] and now - task["claimed_at"] > float(stale):
            task.update(status="pending", assigned_to=None, claimed_at=None)
            changed = True
    # Available: pending, all dependencies completed, not assigned to another agent.
    completed = {task["id"] for task in tasks if task["status"] == "completed"}
    free = [
        task
        for task in tasks
        if task["status"] == "pending" and not task["assigned_to"] and completed.issuperset(task["depends_on"])
    ]
    # Highest priority first, then oldest.
    free.sort(key=lambda task: (-task["priority"], task["created_at"]))
    if free:
        free[0].update(status="in_progress", assigned_to=agent, claimed_at=now)
        changed = True
        answer = "claimed " + free[0]["id"]
    else:
        statuses = {task["status"] for task in tasks}
        open_ = {"pending", "in_progress"} if os.environ.get("HAND_STAY") == "1" else {"pending"}
        answer = "wait" if statuses & open_ else "nothing"
else:
    task = next(task for task in tasks if task["id"] == task_id)
    task.update(status="completed", result="done by " + agent, completed_at=now)
    changed = True
    answer = "completed"
if changed:
    text = json.dumps(data, indent=2)
    rename = os.environ.get("HAND_WRITE") == "rename"
    target = path + "." + agent if rename else path
    with open(target, "w") as file:
        file.write(text[: len(text) // 2] if os.environ.get("HAND_TORN") else text)
    if rename:
        os.replace(target, path)
print(answer)
'

under_lock() { # verb task: sets answer
    # acquire lock
    exec 9>>"$HAND_DIR/taskboard.lock"
    flock 9 || fail "cannot lock $HAND_DIR/taskboard.lock"
    die_at locked
    torn=
    if dies_at torn; then torn=1; fi
    # reload from disk, find available task, mark it, save to disk
    board=$HAND_DIR/taskboard.json
    answer=$(
        export HAND_TORN="$torn" HAND_STAY
        "${HAND_PYTHON:-python3}" -ISc "$program" "$board" "$HAND_NAME" "$1" "$2"
    ) || fail "cannot edit $board"
    [ -z "$torn" ] || die torn
    # release lock
    exec 9>&-
}

while :; do
    under_lock claim ''
    case $answer in
    claimed\ *)
        task=${answer#claimed }
        note claim "$task"
        not_tired
        die_at claimed
        work
        note end "$task"
        under_lock complete "$task"
        note 'done' "$task"
        ;;
    wait) rest ;;
    *) break ;;
    esac
done
