-- Which database this is, and how often its documents changed. With the number of the last entry, this is its position.
CREATE TABLE identity (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    database BLOB NOT NULL,
    document_changes INTEGER NOT NULL
) STRICT;

INSERT INTO identity (id, database, document_changes) VALUES (1, randomblob(16), 0);

-- Losses of acknowledged data that an operator accepted.
CREATE TABLE losses (
    accepted_at_ms INTEGER NOT NULL,
    description TEXT NOT NULL
) STRICT;
