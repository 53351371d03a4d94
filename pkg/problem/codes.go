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
	{"idempotency_key_unknown", 400, "The key was not issued to you, or it expired before it was used. Get one with POST /v1/idempotency-keys."},
	{"if_match_invalid", 400, "Send the version as it came in ETag, in quotes."},
	{"cursor_invalid", 400, "Send next_cursor of the page before, or none."},
	{"login_state_invalid", 400, "The sign-in was begun in another browser, was used already or took too long. Start again at /login."},
	{"sign_in_failed", 400, "The issuer did not sign you in. Start again at /login."},
	{"return_to_invalid", 400, "Send a path on this site as return_to."},
	{"logout_token_invalid", 400, "The issuer's logout token is not valid here; look at its key, issuer, audience and age."},
	{"token_missing", 401, "Send an access token."},
	{"token_invalid", 401, "Get a new access token from the issuer."},
	{"statement_invalid", 401, "Functions answer to the gateway only; send the request there."},
	{"session_missing", 401, "The session has ended. Sign in again at /login."},
	{"role_missing", 403, "The caller needs another role; ask whoever runs the issuer."},
	{"csrf_refused", 403, "Send writes from a page of this site, with the header X-CSRF: 1."},
	{"sign_in_stale", 403, "Sign in again at /login?again=true, and do it within five minutes."},
	{"route_not_found", 404, "Look at the list above."},
	{"not_found", 404, "There is no such thing, or it is not yours."},
	{"entitlement_not_found", 404, "There is no such entitlement, or it is not yours."},
	{"notification_not_found", 404, "There is no such notification, or it is not yours."},
	{"mode_not_found", 404, "There is no such queue. The answer names those that there are."},
	{"ticket_not_found", 404, "There is no such ticket, it is not yours, or it ended more than 5 minutes ago. Join again."},
	{"account_unknown", 404, "There is no such account of money, or it is not yours."},
	{"transfer_not_found", 404, "There is no such transfer, or none of yours."},
	{"account_not_found", 404, "Send POST /v1/me first, which makes the account."},
	{"method_not_allowed", 405, "Use one of the methods in Allow."},
	{"body_timeout", 408, "The body came too slowly. Send it again."},
	{"idempotency_key_reused", 409, "The key belongs to another request. Use a new key."},
	{"idempotency_in_progress", 409, "The first request with this key still runs. Send the same again after Retry-After."},
	{"identity_taken", 409, "The identity has an account already, and accounts are never merged. Sign in with it to use that account."},
	{"too_many_identities", 409, "The account has ten identities. Sign in with one of them."},
	{"ticket_queued", 409, "You wait in this queue already. Read the ticket that the answer names, or cancel it."},
	{"ticket_matched", 409, "The ticket is matched and stays so. Read it for the match."},
	{"version_mismatch", 412, "Somebody changed it. Read it again and decide anew."},
	{"body_too_large", 413, "Send at most 64 KiB."},
	{"content_type_unsupported", 415, "Send application/json."},
	{"request_invalid", 422, "It was read, and the fields named in errors are not acceptable."},
	{"amount_invalid", 422, "Send a positive JSON number without an exponent, with at most 15 digits and 4 decimals."},
	{"currency_invalid", 422, "Send a currency code of three capital letters."},
	{"currencies_differ", 422, "Money moves between accounts of one currency."},
	{"same_account", 422, "Send money to another account than it comes from."},
	{"reversal_of_a_reversal", 422, "A reversal is not reversed. Make a new transfer."},
	{"attributes_invalid", 422, "An attribute is not acceptable; the answer says which and why."},
	{"event_invalid", 422, "It is no valid CloudEvent. Mend its attributes."},
	{"event_type_unknown", 422, "Events of this type are not taken here."},
	{"live_user_id_invalid", 422, "This user id cannot be streamed to. Read the inbox."},
	{"identity_invalid", 422, "The token's issuer or subject is too long or not valid text. Use another issuer."},
	{"second_token_invalid", 422, "Sign in with the identity to link, and send its access token."},
	{"rate_limited", 429, "Wait for Retry-After, and ask less often than RateLimit-Policy allows."},
	{"internal_error", 500, "It is our fault. The same request may be sent again with the same key."},
	{"unavailable", 503, "A part that this needs is away. Send the same request again after Retry-After."},
	{"outcome_unknown", 503, "Whether it was done is not known yet. Send the same request with the same key again."},
	{"queue_full", 503, "Too many wait in this queue. Send the same request again after Retry-After."},
	{"timeout", 504, "It took too long and may have been done. Send the same request again with the same key."},
}
