-- The ledger (docs/LEDGER.md). This file never changes once it is released: a later one does.
-- MySQL and MariaDB. Text is compared and sorted byte by byte. (`utf8mb4_bin` overlooks blanks at the end of a text; keys
-- have none.)
-- A campaign, as of its record's version.
CREATE TABLE ledger_campaigns (
    campaign     VARCHAR(128) NOT NULL PRIMARY KEY,
    version      BIGINT NOT NULL,
    admission    VARCHAR(16) NOT NULL,
    phase        VARCHAR(16) NOT NULL,
    quota        BIGINT NOT NULL,
    total_cents  BIGINT NULL,
    hold_s       BIGINT NOT NULL,
    opens_ms     BIGINT NOT NULL,
    closes_ms    BIGINT NULL,
    created_ms   BIGINT NOT NULL,
    fingerprint  VARCHAR(256) NOT NULL,
    document     MEDIUMTEXT NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- What each packet holds.
CREATE TABLE ledger_packets (
    campaign  VARCHAR(128) NOT NULL,
    unit      BIGINT NOT NULL,
    cents     BIGINT NOT NULL,
    PRIMARY KEY (campaign, unit)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- How each claim stands, and each refund.
CREATE TABLE ledger_claims (
    campaign     VARCHAR(128) NOT NULL,
    shard        BIGINT NOT NULL,
    user_key     VARCHAR(32) NULL,
    user_name    VARCHAR(256) NULL,
    claim_no     BIGINT NULL,
    unit         BIGINT NOT NULL,
    turn         BIGINT NOT NULL,
    cents        BIGINT NULL,
    state        VARCHAR(16) NOT NULL,
    claim_id     VARCHAR(64) NULL,
    idem         VARCHAR(256) NULL,
    claimed_ms   BIGINT NULL,
    deadline_ms  BIGINT NULL,
    changed_ms   BIGINT NOT NULL,
    kind         VARCHAR(16) NOT NULL,
    incarnation  BIGINT NOT NULL,
    ver          BIGINT NOT NULL,
    PRIMARY KEY (campaign, unit, turn),
    UNIQUE (campaign, user_key, claim_no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
CREATE INDEX ledger_claims_of_user ON ledger_claims (user_key);
CREATE INDEX ledger_claims_of_shard ON ledger_claims (campaign, shard, unit, turn);

-- Everything that happened, one row each; rows are added and never changed. No names: those stand in one place each.
CREATE TABLE ledger_entries (
    campaign     VARCHAR(128) NOT NULL,
    shard        BIGINT NOT NULL,
    incarnation  BIGINT NOT NULL,
    ver          BIGINT NOT NULL,
    unit         BIGINT NOT NULL,
    turn         BIGINT NOT NULL,
    cents        BIGINT NULL,
    kind         VARCHAR(16) NOT NULL,
    user_key     VARCHAR(32) NULL,
    claim_no     BIGINT NULL,
    at_ms        BIGINT NOT NULL,
    PRIMARY KEY (campaign, shard, incarnation, ver, unit)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- How far each shard's news are in.
CREATE TABLE ledger_drains (
    campaign     VARCHAR(128) NOT NULL,
    shard        BIGINT NOT NULL,
    incarnation  BIGINT NOT NULL,
    ver          BIGINT NOT NULL,
    behind       BIGINT NOT NULL,
    at_ms        BIGINT NOT NULL,
    PRIMARY KEY (campaign, shard)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- News that contradict a row of ledger_claims: for a person. `stands_…` is that row as it stood.
CREATE TABLE ledger_conflicts (
    campaign            VARCHAR(128) NOT NULL,
    shard               BIGINT NOT NULL,
    incarnation         BIGINT NOT NULL,
    ver                 BIGINT NOT NULL,
    unit                BIGINT NOT NULL,
    turn                BIGINT NOT NULL,
    kind                VARCHAR(16) NOT NULL,
    user_key            VARCHAR(32) NOT NULL,
    user_name           VARCHAR(256) NULL,
    claim_no            BIGINT NULL,
    cents               BIGINT NULL,
    claim_id            VARCHAR(64) NULL,
    at_ms               BIGINT NOT NULL,
    stands_user_key     VARCHAR(32) NULL,
    stands_claim_no     BIGINT NULL,
    stands_unit         BIGINT NOT NULL,
    stands_turn         BIGINT NOT NULL,
    stands_state        VARCHAR(16) NOT NULL,
    stands_incarnation  BIGINT NOT NULL,
    stands_ver          BIGINT NOT NULL,
    PRIMARY KEY (campaign, shard, incarnation, ver, unit, turn, kind, user_key)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- Who holds each unit now. A higher turn says that the lower ones are over, even where that news is still on its way.
CREATE VIEW ledger_holders AS
SELECT c.campaign, c.unit, c.turn, c.cents, c.state, c.user_key, c.user_name, c.claim_no, c.claimed_ms, c.deadline_ms
FROM ledger_claims c
WHERE c.state IN ('held', 'confirmed')
  AND NOT EXISTS (
    SELECT 1 FROM ledger_claims later
    WHERE later.campaign = c.campaign AND later.unit = c.unit AND later.turn > c.turn
  );

-- Every packet; its user is empty until somebody holds it. By the last turn and not by ledger_holders, so that a database
-- which has no statistics of the tables yet looks each packet up, and does not compare all with all.
CREATE VIEW ledger_packet_holders AS
SELECT p.campaign, p.unit, p.cents, h.turn, h.state, h.user_key, h.user_name, h.claimed_ms
FROM ledger_packets p
LEFT JOIN ledger_claims h ON h.campaign = p.campaign AND h.unit = p.unit AND h.state IN ('held', 'confirmed')
  AND h.turn = (SELECT MAX(newest.turn) FROM ledger_claims newest WHERE newest.campaign = p.campaign AND newest.unit = p.unit);
