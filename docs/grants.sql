-- What a database role needs to work on boards, and nothing more.
--
-- Run with psql as the owner of the schema dibs, after `dibs init`, once for each role:
--
--     psql -v worker=build_agents -f grants.sql postgresql://owner@db.example.com/work
--
-- The role can then use every board of this database, those that the owner makes later included. It can add tasks and
-- change what becomes of them, and append to the changelog and to the messages. It cannot make boards, drop or empty a
-- table, delete a task or say that it is another one, change or remove an entry of the changelog or a message, or set a
-- sequence.
--
-- All is granted, or nothing; if not, psql ends with an error and exit code 3.

\set ON_ERROR_STOP on
\if :{?worker}
\else
DO $$ BEGIN RAISE EXCEPTION 'no role was named, and nothing was granted'
    USING HINT = 'psql -v worker=ROLE -f grants.sql postgresql://OWNER@HOST/DATABASE'; END $$;
\endif

BEGIN;

GRANT USAGE ON SCHEMA dibs TO :"worker";

GRANT SELECT ON dibs.version, dibs.board TO :"worker";
GRANT SELECT, INSERT ON dibs.task, dibs.ready_watermark, dibs.reader, dibs.event, dibs.message TO :"worker";
-- What becomes of a task, but not what it is: its id, description, priority, paths, review and reservation stay.
GRANT UPDATE (status, assigned_to, depends_on, result, claimed_at, completed_at, token, lease, lease_expires_at, holder,
    steps, blockers, open_blockers, attempts, unmet, last_event, dependants, claim_mark) ON dibs.task TO :"worker";
GRANT UPDATE (floor) ON dibs.ready_watermark TO :"worker";
GRANT UPDATE (mark) ON dibs.reader TO :"worker";
GRANT SELECT, INSERT, DELETE ON dibs.dependency, dibs.request TO :"worker";
GRANT SELECT, INSERT, UPDATE, DELETE ON dibs.lock TO :"worker";

-- Each board has two sequences: those that are there, and those of boards that this owner makes later.
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA dibs TO :"worker";
ALTER DEFAULT PRIVILEGES IN SCHEMA dibs GRANT USAGE, SELECT ON SEQUENCES TO :"worker";

COMMIT;
