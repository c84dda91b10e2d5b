-- One row per session: where its history ends, and what is needed to list and expire it without reading the history.
CREATE TABLE sessions (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    sequence INTEGER NOT NULL,
    hash BLOB NOT NULL,
    open INTEGER NOT NULL,
    deadline_ms INTEGER NOT NULL,
    state INTEGER NOT NULL
) STRICT;

-- What was told of a session when it began. Apart from the row above, which changes with every commit of the session:
-- narrow rows share pages, and a commit writes whole pages.
CREATE TABLE summaries (
    session INTEGER PRIMARY KEY,
    summary BLOB NOT NULL
) STRICT;

-- Partial indexes: ended sessions, which are nearly all of them after a while, cost nothing here.
CREATE INDEX sessions_deadline ON sessions (deadline_ms, id) WHERE open = 1;
CREATE INDEX sessions_open ON sessions (id) WHERE open = 1;

-- The histories. Rows are only ever added, and land at the end of the table whatever their session, so that a commit
-- of many sessions writes few pages.
CREATE TABLE entries (
    session INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    bytes BLOB NOT NULL,
    hash BLOB NOT NULL,
    UNIQUE (session, sequence)
) STRICT;

-- Small documents that belong to no session.
CREATE TABLE documents (
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    bytes BLOB NOT NULL,
    PRIMARY KEY (kind, key)
) STRICT, WITHOUT ROWID;

-- A place to write to when the question is whether writing works.
CREATE TABLE probe (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    count INTEGER NOT NULL,
    ballast BLOB
) STRICT;

INSERT INTO probe (id, count) VALUES (1, 0);
