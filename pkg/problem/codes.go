package problem

// Code explains one of the stable codes.
type Code struct {
	Code   string
	Status int
	Do     string // what it means and what the caller does next
}

// Codes are all codes that the API answers with; /docs shows them. A test
// compares them with the code.
var Codes = []Code{
	{"request_malformed", 400, "The body is not one JSON value: broken, followed by more data, with a name twice, or nested too deeply. Mend it."},
	{"url_invalid", 400, "The path or query is not valid UTF-8. Encode it."},
	{"idempotency_key_missing", 400, "Send an Idempotency-Key, and the same one on every retry."},
	{"idempotency_key_invalid", 400, "Send one key of up to 255 printable ASCII characters."},
	{"if_match_invalid", 400, "Send the version as it came in ETag, in quotes."},
	{"cursor_invalid", 400, "Send next_cursor of the page before, or none."},
	{"token_missing", 401, "Send an access token."},
	{"token_invalid", 401, "Get a new access token from the issuer."},
	{"statement_invalid", 401, "Functions answer to the gateway only; send the request there."},
	{"role_missing", 403, "The caller needs another role; ask whoever runs the issuer."},
	{"route_not_found", 404, "Look at the list above."},
	{"not_found", 404, "There is no such thing, or it is not yours."},
	{"entitlement_not_found", 404, "There is no such entitlement, or it is not yours."},
	{"method_not_allowed", 405, "Use one of the methods in Allow."},
	{"body_timeout", 408, "The body came too slowly. Send it again."},
	{"idempotency_key_reused", 409, "The key belongs to another request. Use a new key."},
	{"idempotency_in_progress", 409, "The first request with this key still runs. Send the same again after Retry-After."},
	{"version_mismatch", 412, "Somebody changed it. Read it again and decide anew."},
	{"body_too_large", 413, "Send at most 64 KiB."},
	{"content_type_unsupported", 415, "Send application/json."},
	{"request_invalid", 422, "It was read, and the fields named in errors are not acceptable."},
	{"event_invalid", 422, "It is no valid CloudEvent. Mend its attributes."},
	{"event_type_unknown", 422, "Events of this type are not taken here."},
	{"internal_error", 500, "It is our fault. The same request may be sent again with the same key."},
	{"unavailable", 503, "A part that this needs is away. Send the same request again after Retry-After."},
	{"timeout", 504, "It took too long and may have been done. Send the same request again with the same key."},
}
