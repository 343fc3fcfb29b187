#!/bin/sh
# A worker by document 001: activities of one work item (HAND_DIR), each claimed by creating locks/ACTIVITY.lock.
#
# An activity's tasks are done in order, each entered in the activity's lock file while it is worked on. Whoever writes
# progress.yaml holds locks/WORK_ITEM.lock for it, in the format of any other lock, and checks `version`: the document
# leaves open how holders of two activities share that file.
#
# Further settings: HAND_KIND (agent or human), HAND_LEASE and HAND_STEP_LEASE (seconds; the document's by kind),
# HAND_GUARD_LEASE (seconds for WORK_ITEM.lock, 60: it is held for one write, and whoever dies in it stops all writers).
# Points to die at: locked (lock made, nothing logged), claimed (at work on a task), guarded (holding WORK_ITEM.lock,
# nothing written), completed (progress.yaml written, the activity's lock still there).
#
# Where the document itself races:
# - "Delete old lock, create new one": of two who found the same expired lock, the second deletes the first one's
#   new lock, and both are in. HAND_BREAKING=never leaves it to others.
# - noclobber creates an empty file and then writes it. A lock without a readable `expires` is taken for live, so
#   a worker that dies in between leaves a lock that never expires.
# - A worker that outlives its lease is not told. Here it looks at its lock before it writes and backs off, which leaves
#   the instant between the look and the write. Leases in tests must be long against the work and the pauses.

HAND_PAUSE=${HAND_PAUSE:-0.02}
HAND_KIND=${HAND_KIND:-agent}
if [ "$HAND_KIND" = human ]; then
    HAND_LEASE=${HAND_LEASE:-28800}
    HAND_STEP_LEASE=${HAND_STEP_LEASE:-14400}
else
    HAND_LEASE=${HAND_LEASE:-3600}
    HAND_STEP_LEASE=${HAND_STEP_LEASE:-1800}
fi
HAND_GUARD_LEASE=${HAND_GUARD_LEASE:-60}
. "${0%/*}/common.sh"

progress=$HAND_DIR/progress.yaml
locks=$HAND_DIR/locks
item=$(sed -n "s/^work_item_id: *[\"']*\([A-Za-z0-9._-]*\).*/\1/p" "$progress")
[ -n "$item" ] || fail "no work_item_id in $progress"

iso() { # seconds from now
    date -u -d "@$(($(date +%s) + $1))" +%Y-%m-%dT%H:%M:%SZ
}

field() { # lock file, key: the text value, or nothing
    sed -n "s/.*\"$2\": *\"\([^\"]*\)\".*/\1/p" "$1" 2>/dev/null
}

lock_text() { # acquired expires task task_acquired task_expires
    printf '{\n  "holder": "%s",\n  "holder_type": "%s",\n  "acquired": "%s",\n  "expires": "%s",\n' \
        "$HAND_NAME" "$HAND_KIND" "$1" "$2"
    printf '  "task_id": %s,\n  "task_acquired": %s,\n  "task_expires": %s\n}\n' "$3" "$4" "$5"
}

is_expired() { # lock file: "if expires < now, lock is stale"; in doubt it is live
    ends=$(field "$1" expires)
    [ -n "$ends" ] || return 1
    ends=$(date -d "$ends" +%s 2>/dev/null) || return 1
    [ "$ends" -lt "$(date +%s)" ]
}

take_lock() { # lock file, seconds: sets acquired, expires, recovered
    recovered=0
    # 1. Check for an existing lock file.
    if [ -e "$1" ]; then
        # 2. Exists and not expired: taken.  3. Exists and expired: delete the old lock, create a new one.
        is_expired "$1" || return 1
        [ "$HAND_BREAKING" != never ] || return 1
        note broke "${1##*/}"
        rm -f "$1"
        recovered=1
    fi
    # 4. Create the lock file atomically: noclobber.
    acquired=$(iso 0)
    expires=$(iso "$2")
    text=$(lock_text "$acquired" "$expires" null null null)
    (set -C && printf '%s\n' "$text" >"$1") 2>/dev/null
}

enter_task() { # lock file, task: "when a worker claims a task, they update their activity lock file"
    lock_text "$acquired" "$expires" "\"$2\"" "\"$(iso 0)\"" "\"$(iso "$HAND_STEP_LEASE")\"" >"$1.$HAND_NAME"
    mv "$1.$HAND_NAME" "$1"
}

is_mine() { # lock file
    [ "$(field "$1" holder) $(field "$1" acquired)" = "$HAND_NAME $acquired" ] && ! is_expired "$1"
}

log() { # action activity task details: one line, one append
    line="{\"timestamp\":\"$(iso 0)\",\"worker\":\"$HAND_NAME\",\"worker_type\":\"$HAND_KIND\",\"action\":\"$1\""
    line="$line,\"activity_id\":\"$2\"${3:+,\"task_id\":\"$3\"},\"details\":\"$4\"}"
    printf '%s\n' "$line" >>"$HAND_DIR/changelog.log"
}

# Both programs below find an item's own lines by their column: an item starts with `- id:`, and its other keys are
# in the column of that `id`.
# shellcheck disable=SC2016
lines='
    function bare(text) { sub(/[ \t]+#.*$/, "", text); gsub(/^[ \t"\047]+|[ \t"\047]+$/, "", text); return text }
    function look(   rest) {
        match($0, /^ */); column = RLENGTH; rest = substr($0, column + 1); starts = key = value = ""
        if (rest ~ /^#/ || rest == "") return 0
        while (match(rest, /^- +/)) { column += RLENGTH; rest = substr(rest, RLENGTH + 1); starts = 1 }
        if (match(rest, /^[A-Za-z_]+:([ \t]|$)/)) {
            key = rest; sub(/:.*/, "", key); value = bare(substr(rest, length(key) + 2))
        } else value = bare(rest)
        if (column == 0 && key != "" && starts == "") { section = key; first = 0 }
        if (section == "activities" && starts && key == "id") {
            if (!first) first = column
            if (column == first) { activity = value; task = "" } else { task = value; second = column }
        }
        if (section != "activities" || !first) owner = ""
        else if (column == first) owner = activity
        else owner = (task != "" && column == second) ? task : "?"
        return 1
    }
'

survey() { # `A ID STATUS ACTOR DEPENDENCY…` for each activity, `T ID STATUS ACTIVITY` for each of its tasks, in order
    awk "$lines"'
        !look() { next }
        starts && key == "id" && owner == activity && owner != "" { order[++count] = value }
        starts && key == "id" && owner == task && owner != "" { order[++count] = value; parent[value] = activity }
        key != "" { needs_next = 0 }
        owner == "" { next }
        key == "status" { status[owner] = value }
        key == "actor" { actor[owner] = value }
        key == "depends_on" && owner == activity {
            needs_next = 1; gsub(/[][,"\047]/, " ", value); needs[activity] = " " value; next
        }
        key == "" && starts && needs_next { needs[activity] = needs[activity] " " value }
        END {
            for (n = 1; n <= count; n++) {
                id = order[n]
                if (id in parent) print "T", id, status[id], parent[id]
                else print "A", id, status[id], (actor[id] == "" ? "any" : actor[id]) needs[id]
            }
        }
    ' "$progress"
}

candidates() { # from a survey: activities that are open, met and not for the other kind; `.` while any is open
    awk -v kind="$HAND_KIND" '
        $1 != "A" { next }
        { order[++count] = $2; status[$2] = $3; actor[$2] = $4; for (n = 5; n <= NF; n++) needs[$2] = needs[$2] " " $n }
        END {
            for (n = 1; n <= count; n++) {
                id = order[n]
                if (status[id] == "pending" || status[id] == "in_progress") waiting = 1; else continue
                met = actor[id] == "any" || actor[id] == kind
                size = split(needs[id], list, " ")
                for (m = 1; m <= size; m++) if (status[list[m]] != "completed" && status[list[m]] != "skipped") met = 0
                if (met) print id
            }
            if (waiting) print "."
        }'
}

mark() { # id: completed, in progress.yaml; 1 if the activity's lock, $lock, is no longer ours
    # Whoever writes progress.yaml holds the work item's lock.
    mine="$acquired $expires"
    until take_lock "$locks/$item.lock" "$HAND_GUARD_LEASE"; do rest; done
    acquired=${mine% *} expires=${mine#* }
    if ! is_mine "$lock"; then
        rm -f "$locks/$item.lock"
        return 1
    fi
    die_at guarded
    version=$(sed -n 's/^version: *\([0-9]*\).*/\1/p' "$progress")
    last=$(survey | awk -v id="$1" '
        $1 == "A" && $2 == id { whole = 1 }
        $1 == "A" && $2 != id && $3 != "completed" && $3 != "skipped" { more = 1 }
        END { if (whole && !more) print "review" }')
    temporary=$HAND_DIR/.progress.yaml.$HAND_NAME
    cp -p "$progress" "$temporary"
    awk -v id="$1" -v by="$HAND_NAME" -v at="$(iso 0)" -v last="$last" "$lines"'
        function put(text,   comment) {
            comment = match($0, /[ \t]+#.*$/) ? substr($0, RSTART) : ""
            match($0, /^[^:]*:/)
            $0 = substr($0, 1, RLENGTH) " " text comment
        }
        look() {
            if (owner == id && key == "status") put("completed")
            if (owner == id && key == "completed_by") put(by)
            if (owner == id && key == "completed_at") put("\"" at "\"")
            if (column == 0 && !starts) {
                if (key == "version") put(value + 1)
                if (key == "last_modified" || key == "updated") put("\"" at "\"")
                if (key == "last_modified_by") put(by)
                if (key == "status" && last != "") put(last)
            }
        }
        { print }
    ' "$progress" >"$temporary" || fail "cannot write $temporary"
    [ "$version" = "$(sed -n 's/^version: *\([0-9]*\).*/\1/p' "$progress")" ] ||
        fail "version of $progress changed under $item.lock"
    mv "$temporary" "$progress" || fail "cannot write $progress"
    rm -f "$locks/$item.lock"
}

do_activity() { # id, its lock held
    lock=$locks/$1.lock
    for task in $(survey | awk -v activity="$1" '$1 == "T" && $4 == activity && $3 != "completed" { print $2 }'); do
        is_mine "$lock" || return 1
        enter_task "$lock" "$task"
        die_at claimed
        work
        mark "$task" || return 1
        log completed_task "$1" "$task" "finished"
    done
    is_mine "$lock" || return 1
    note end "$1"
    # progress.yaml first, the lock second, the changelog third.
    mark "$1" || return 1
    die_at completed
    rm -f "$lock"
    log completed_activity "$1" '' "all tasks done"
    note 'done' "$1"
}

mkdir -p "$locks"
while :; do
    found=$(survey | candidates)
    [ -n "$found" ] || break
    claimed=
    for activity in $found; do
        [ "$activity" != . ] || continue
        take_lock "$locks/$activity.lock" "$HAND_LEASE" || continue
        die_at locked
        # The list was read before the lock was taken: somebody may have finished the activity in between.
        if ! survey | candidates | grep -qxF "$activity"; then
            rm -f "$locks/$activity.lock"
            continue
        fi
        claimed=$activity
        break
    done
    if [ -z "$claimed" ]; then
        rest
        continue
    fi
    note claim "$claimed"
    not_tired
    if [ "$recovered" = 1 ]; then
        log recovered_activity "$claimed" '' "resumed after an expired lock"
    else
        log claimed_activity "$claimed" '' "starting work"
    fi
    do_activity "$claimed" || note lost "$claimed"
done
