package notification

// SinceSQL is the statement of Since.
const SinceSQL = sinceSQL
