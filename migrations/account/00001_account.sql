-- +goose Up
CREATE SCHEMA IF NOT EXISTS account;

-- Who plays. There is no e-mail address here, on purpose: an address can change
-- hands, so two identities that share one are still two accounts.
CREATE TABLE account.users (
    user_id    uuid        PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- Who an issuer says a user is. The primary key is what makes an identity one
-- user's, whoever registers or links it at the same time.
CREATE TABLE account.identities (
    issuer    text        NOT NULL CHECK (char_length(issuer) BETWEEN 1 AND 512),
    subject   text        NOT NULL CHECK (char_length(subject) BETWEEN 1 AND 255),
    user_id   uuid        NOT NULL REFERENCES account.users,
    linked_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (issuer, subject)
);
CREATE INDEX identities_user_id ON account.identities (user_id);

-- The roles that the user had at the last sign-in. They are replaced as a whole,
-- under the lock of the user's row.
CREATE TABLE account.user_roles (
    user_id uuid NOT NULL REFERENCES account.users,
    role    text NOT NULL CHECK (char_length(role) BETWEEN 1 AND 64),
    PRIMARY KEY (user_id, role)
);

-- +goose Down
DROP SCHEMA account CASCADE;
