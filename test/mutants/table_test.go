// Package mutants plants bugs in the program, one by one, and shows which test notices each:
// a promise whose tests notice nothing is none.
package mutants_test

// promise is what users were promised, and bugs that break it.
type promise struct {
	text    string
	mutants []mutant
}

// mutant is a bug: a part of a file, which is there once, and what replaces it. proof is the
// package and the test that must notice.
type mutant struct{ bug, file, part, instead, proof string }

var promises = []promise{
	{"an answered write is not lost", []mutant{
		{
			"a caller that gives up cancels its commit's wait for the standby", "pkg/postgres/postgres.go",
			"config.BeforeConnect = cancelNothing\n", "_ = cancelNothing\n",
			"pkg/postgres TestGivenUpCommitStaysHidden",
		},
		{
			"the quick commit of taking a key is the session's from then on", "pkg/transfer/take_key.sql",
			"set_config('synchronous_commit', 'off', true)", "set_config('synchronous_commit', 'off', false)",
			"pkg/transfer TestOnlyTakingAKeyCommitsQuickly",
		},
		{
			"writes of a batch that failed are answered as if they had happened", "pkg/groupcommit/groupcommit.go",
			"if c.err = err; err == nil {", "if err == nil {",
			"pkg/groupcommit TestPoison",
		},
		{
			"an item changes without its event", "pkg/entitlement/change_one.sql",
			"FROM changed c,\n", "FROM (SELECT * FROM changed WHERE version > 1) c,\n",
			"test/api TestGrantIsNotified",
		},
	}},
	{"one effect per key", []mutant{
		{
			"a stored answer does not keep the change from happening again", "pkg/entitlement/change_one.sql",
			"WHERE NOT EXISTS (SELECT FROM prior)\n      AND", "WHERE",
			"test/api TestReplay",
		},
		{
			"another body with the same key gets the stored answer", "pkg/entitlement/write.go",
			"case !bytes.Equal(a.hash, w.Key.Hash):", "case bytes.Equal(a.hash, nil):",
			"test/api TestReusedKey",
		},
		{
			"a key counts for all callers", "pkg/entitlement/change_one.sql",
			"WHERE caller = $5 AND operation = $6", "WHERE $5::text IS NOT NULL AND operation = $6",
			"test/api TestKeyScope",
		},
		{
			"the key of a request that won the race is forgotten", "pkg/entitlement/write.go",
			"AND idem_key = $3 AND expires_at <= now()`", "AND idem_key = $3`",
			"pkg/entitlement TestOneKeyAtOnceInTheStore",
		},
		{
			"a key of a transfer is taken again after it was used", "pkg/transfer/take_key.sql",
			"WHERE f.status IS NULL AND NOT f.unknown AND f.giver = f.taker AND coalesce(k.status, '') = ''",
			"WHERE NOT f.unknown AND f.giver = f.taker",
			"pkg/transfer TestTransfer",
		},
		{
			"a used key answers any transfer", "pkg/transfer/take_key.sql",
			"WHEN f.request_hash <> f.hash THEN 'REUSED'", "WHEN f.request_hash IS NULL THEN 'REUSED'",
			"pkg/transfer TestTransfer",
		},
		{
			"a refund that came first is undone by its purchase", "pkg/entitlement/change_one.sql",
			"SELECT $14::boolean AND $6 = 'grant' AND EXISTS", "SELECT $14::boolean AND $6 = 'refund' AND EXISTS",
			"test/api TestRefundOvertakesPurchase",
		},
		{
			"If-Match of one version grants any", "pkg/entitlement/change_one.sql",
			"WHERE $4::bigint = 0 OR e.version = $4::bigint", "WHERE $4::bigint >= 0",
			"test/api TestIfMatch",
		},
	}},
	{"answers about money are final, and its total never changes", []mutant{
		{
			"a transfer does not look whether its key is still its own", "pkg/transfer/move_money.sql",
			"coalesce(k.status = 'IN_PROGRESS' AND k.attempt = a.attempt, false)", "true",
			"pkg/transfer TestWatchdogRaces",
		},
		{
			"a transfer does not lock its key", "pkg/transfer/move_money.sql",
			"ORDER BY k.idempotency_key_id FOR UPDATE OF k\n", "ORDER BY k.idempotency_key_id\n",
			"pkg/transfer TestWatchdogRaces",
		},
		{
			"the watchdog ends what has begun just now", "pkg/transfer/watchdog.go",
			"WHERE status = 'IN_PROGRESS' AND started_at < now() - $1::interval", "WHERE status = 'IN_PROGRESS' AND started_at < now() + $1::interval",
			"pkg/transfer TestConnectionCutAtTheCommit",
		},
		{
			"a transfer whose answer was lost ends FAILED although it moved", "pkg/transfer/watchdog.go",
			"WHERE idempotency_key_id = $1 AND attempt = $2 AND status = 'IN_PROGRESS'`", "WHERE idempotency_key_id = $1 AND attempt = $2`",
			"pkg/transfer TestConnectionCutAtTheCommit",
		},
		{
			"an account gives more than it has", "pkg/transfer/move_money.sql",
			"WHEN owners[giver] IS NOT NULL AND balances[giver] < p_amounts[i]", "WHEN owners[giver] IS NOT NULL AND balances[giver] < p_amounts[i] / 2",
			"pkg/transfer TestFailedIsForGood",
		},
		{
			"an account cannot give all that it has", "pkg/transfer/move_money.sql",
			"balances[giver] < p_amounts[i] THEN", "balances[giver] <= p_amounts[i] THEN",
			"pkg/transfer TestOneAccountAtOnce",
		},
		{
			"money arrives that nobody gave", "pkg/transfer/move_money.sql",
			"balances[giver] := balances[giver] - p_amounts[i];", "balances[giver] := balances[giver] - p_amounts[i] + 0.0001;",
			"pkg/transfer TestNoMoneyIsMadeOrLost",
		},
		{
			"a second reversal is no failure of the caller's", "pkg/transfer/move_money.sql",
			"WHEN p_reverses[i] = ANY (reversed) THEN 'ALREADY_REVERSED'", "WHEN p_reverses[i] IS NULL AND p_amounts[i] IS NULL THEN 'ALREADY_REVERSED'",
			"pkg/transfer TestReversal",
		},
		{
			"a ledger has one side", "pkg/transfer/ledger.go",
			"(VALUES (t.from_account_id, 'DEBIT'), (t.to_account_id, 'CREDIT'))", "(VALUES (t.to_account_id, 'CREDIT'))",
			"pkg/transfer TestBalanceCheck",
		},
		{
			"an attempt that gave up takes the key from another", "pkg/transfer/move.go",
			"AND idempotency_key = $3 AND attempt = $4 AND status = 'IN_PROGRESS'`", "AND idempotency_key = $3 AND $4::uuid IS NOT NULL AND status = 'IN_PROGRESS'`",
			"pkg/transfer TestAnswerOfTakingLost",
		},
	}},
	{"a committed event reaches the broker, or is FAILED", []mutant{
		{
			"a settled transfer's event has an id of no time", "pkg/transfer/settle.go",
			"SELECT *, (lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') || '-7' || substr(gen_random_uuid()::text, 16))::uuid AS id", "SELECT *, gen_random_uuid() AS id",
			"pkg/transfer TestEveryExecMode",
		},
		{
			"a settled transfer's event has an id of an hour before", "pkg/transfer/settle.go",
			"extract(epoch FROM clock_timestamp())", "extract(epoch FROM clock_timestamp() - interval '1 hour')",
			"pkg/transfer TestEveryExecMode",
		},
		{
			"a transfer's event has an id of an hour later", "pkg/transfer/move_money.sql",
			"extract(epoch FROM at_time)", "extract(epoch FROM at_time + interval '1 hour')",
			"pkg/transfer TestTransfer",
		},
		{
			"a change's event has an id of an hour later", "pkg/entitlement/change_one.sql",
			"extract(epoch FROM e.updated_at)", "extract(epoch FROM e.updated_at + interval '1 hour')",
			"pkg/entitlement TestAloneAndTogether",
		},
		{
			"an event that the broker did not take counts as published", "pkg/outbox/outbox.go",
			"b.Returned = append(b.Returned, failure)", "b.Done = append(b.Done, id)",
			"pkg/outbox TestFullStream",
		},
		{
			"a publish that was refused counts as acknowledged", "pkg/jetstream/publisher.go",
			"case err := <-future.Err():\n\t\t\tresults[i] = p.judge(err)", "case err := <-future.Err():\n\t\t\t_ = p.judge(err)",
			"pkg/outbox TestFullStream",
		},
		{
			"a message without a stream counts as published", "pkg/jetstream/publisher.go",
			"js.PublishMsgAsync(toMsg(m), jetstream.WithExpectStream(StreamName(m.Subject)))", "js.PublishMsgAsync(toMsg(m))",
			"pkg/jetstream TestPublishIntoAForeignStream",
		},
		{
			"a lost event is published again under the id that the broker remembers", "pkg/outbox/reconcile.go",
			"message.Dedup = uuid.NewString()\n", "",
			"test/outage TestLostWithinTheDuplicateWindow",
		},
		{
			"the watermark passes events that are not published", "pkg/outbox/reconcile.go",
			"if status != Published && status != Failed {\n", "if status == \"\" {\n",
			"test/outage TestWatermarkWaitsForTheUnfinished",
		},
		{
			"events that are on their way count as lost", "pkg/jetstream/consumer.go",
			"caught = info.TimeStamp.Sub(oldest.Time) < age", "caught = true || info.TimeStamp.Sub(oldest.Time) < age",
			"test/outage TestBacklogIsNotLost",
		},
		{
			"an event that kills its relay is tried for ever", "pkg/outbox/outbox.go",
			"if row.Exhausted {", "if row.Exhausted && row.Attempt == 0 {",
			"pkg/outbox TestCrashOnTheLastAttempt",
		},
	}},
	{"a row is finished once, by its holder", []mutant{
		{
			"the fencing token is not compared", "pkg/lease/statements.go",
			"i.id AND t.claim_token = $2 AND t.status", "i.id AND $2::uuid IS NOT NULL AND t.status",
			"pkg/lease TestZombieChangesNothing",
		},
		{
			"claimed rows are claimed again before their lease ends", "pkg/lease/statements.go",
			"(status = {pending} OR lease_until <= now())", "(status = {pending} OR lease_until <= now() + interval '1 hour')",
			"pkg/lease TestManyWorkersFinishEveryRowOnce|TestClaimTakesOnlyWhatIsDue",
		},
		{
			"a claim waits for rows that others claim", "pkg/lease/statements.go",
			"FOR UPDATE SKIP LOCKED\n), first", "FOR UPDATE\n), first",
			"pkg/lease TestClaimSkipsLockedRows",
		},
		{
			"a claim does not count its attempt", "pkg/lease/statements.go",
			"least(t.attempt_count + 1, $5)", "least(t.attempt_count, $5)",
			"pkg/lease TestCrashAtTheLastAttempt",
		},
		{
			"rows that died together are claimed together again", "pkg/lease/statements.go",
			"greatest(claim_size / 2, 1)", "claim_size",
			"pkg/outbox TestEventThatKillsItsRelay",
		},
		{
			"work goes on until the lease ends", "pkg/lease/lease.go",
			"const workFraction = 0.6", "const workFraction = 1.1",
			"pkg/lease TestDeadlineIsBeforeTheLeaseEnds",
		},
		{
			"the last failure of a row is retried", "pkg/lease/lease.go",
			"if attempts[f.ID] >= c.queue.policy.MaxAttempts {", "if attempts[f.ID] > c.queue.policy.MaxAttempts {",
			"pkg/lease TestRetryAtTheLastAttemptFails",
		},
	}},
	{"one notification per event and recipient", []mutant{
		{
			"messages are acknowledged before they are stored", "functions/internal/consume/consume.go",
			"err := b.store.AcceptAll(ctx, records)\n", "for _, it := range items {\n\t\t_ = it.delivery.Ack()\n\t}\n\terr := b.store.AcceptAll(ctx, records)\n",
			"functions/internal/consume TestStoreAway",
		},
		{
			"an event is remembered by nothing but its notification", "pkg/notification/accept.go",
			"FROM input JOIN fresh USING (event_id)\n", "FROM input LEFT JOIN fresh USING (event_id)\n",
			"pkg/notification TestAcceptAfterTheNotificationIsGone",
		},
		{
			"both recipients of an event count as one", "pkg/notification/notices.go",
			"views := []transferView{{s, s.FromUser, \"SENT\"}, {s, s.ToUser, \"RECEIVED\"}}", "views := []transferView{{s, s.FromUser, \"SENT\"}}",
			"test/money TestMoneyMoves",
		},
		{
			"a message is terminated whether or not its letter is stored", "functions/internal/consume/consume.go",
			"if err != nil {\n\t\tb.again([]item{it})", "if err != nil && it.delivery.Terminate(\"\") != nil {\n\t\tb.again([]item{it})",
			"functions/internal/consume TestPoisonIsKeptBeforeItIsTerminated",
		},
		{
			"a database that is away makes dead letters", "pkg/notification/accept.go",
			"return postgres.BadData(err) || errors.Is(err, event.ErrUnreadable)", "return err != nil || errors.Is(err, event.ErrUnreadable)",
			"test/outage TestPostgresAwayIsNoPoison",
		},
		{
			"a transfer that is delivered twice is settled twice", "pkg/transfer/settle.go",
			"AS id FROM input JOIN fresh USING (event_id)", "AS id FROM input LEFT JOIN fresh USING (event_id)",
			"pkg/transfer TestEveryExecMode",
		},
		{
			"the broker gives up on messages that were redelivered five times", "pkg/jetstream/consumer.go",
			"MaxDeliver:    -1,", "MaxDeliver:    5,",
			"pkg/jetstream TestStreamAndConsumerConfiguration",
		},
	}},
	{"sending is at least once, with a stable id", []mutant{
		{
			"what was not sent in time counts as sent", "pkg/notification/deliver.go",
			"o.Returned = append(o.Returned, failure)", "o.Done = append(o.Done, row.ID)",
			"pkg/notification TestTickEndsWhileSending|TestNotSentIsNotAnAttempt",
		},
		{
			"a FAILED notification has no dead letter", "pkg/lease/statements.go",
			"RETURNING t.*\n){deadletter}\n", "RETURNING t.*\n)\n",
			"pkg/notification TestFailedAndDeadLetterAreBothOrNone",
		},
		{
			"each attempt has an id of its own", "pkg/notification/deliver.go",
			"outgoing.ID, outgoing.Attempt = textID(row.ID), row.Attempt", "outgoing.ID, outgoing.Attempt = fmt.Sprint(textID(row.ID), row.Attempt), row.Attempt",
			"pkg/notification TestKilledAfterSending",
		},
		{
			"after a restore, what is accepted once more has another id", "pkg/notification/accept.go",
			"id.Derived(r.OccurredAt, ", "id.Derived(time.Now(), ",
			"test/outage TestRestoredToASecond",
		},
		{
			"what was sent at the last attempt is sent once more", "pkg/notification/deliver.go",
			"if row.Exhausted {", "if row.Exhausted && row.Attempt == 0 {",
			"pkg/notification TestKilledAtTheLastAttempt",
		},
		{
			"a receiver that answers 503 has it", "pkg/webhook/webhook.go",
			"response.StatusCode < 300:", "response.StatusCode < 600:",
			"pkg/webhook TestAnswers",
		},
		{
			"a stream does not look back for what committed late", "pkg/notification/since.go",
			"const Overlap = 15 * time.Second", "const Overlap = time.Millisecond",
			"pkg/notification TestFollowerSeesWhatCommitsLate|TestFollowerLooksBackFarEnough",
		},
	}},
	{"a ticket is in at most one match, which is told once", []mutant{
		{
			"a ticket that has ended may be matched", "pkg/matchmaking/queue.lua",
			"if not t.over and t.expires > now then", "if t.expires > now then",
			"pkg/matchmaking TestRacesEndWell|TestCancel",
		},
		{
			"an expired ticket is matched", "pkg/matchmaking/queue.lua",
			"if not t.over and t.expires > now then", "if not t.over then",
			"pkg/matchmaking TestExpired",
		},
		{
			"one of two does not learn of the match", "pkg/matchmaking/queue.lua",
			"\tnote(b, match .. a.user)\n", "",
			"pkg/matchmaking TestFirstComeFirstServed|TestAnnounced",
		},
		{
			"players are matched with themselves", "pkg/matchmaking/match_first.lua",
			"elseif first.user ~= ticket.user then", "else",
			"pkg/matchmaking TestNotWithThemselves",
		},
		{
			"a match is cancelled for one of its players", "pkg/matchmaking/cancel.lua",
			"local ticket = fetch(ARGV[4])\n", "local ticket = ticket_of(ARGV[4], text)\n",
			"pkg/matchmaking TestCancel|TestRacesEndWell",
		},
		{
			"a player waits twice", "pkg/matchmaking/join.lua",
			"if latest and fetch(latest) then return { 'WAITING', latest } end\n", "",
			"pkg/matchmaking TestJoinAgain",
		},
		{
			"a join that is repeated joins again", "pkg/matchmaking/join.lua",
			"if used then\n", "if used and #used == 0 then\n",
			"test/matchmaking TestJoinReplays",
		},
		{
			"of two workers with a match each announces a session of its own", "pkg/matchmaking/session.lua",
			"noted = noted or before\n", "",
			"pkg/matchmaking TestWorkersSideBySide|TestSlowWorker",
		},
		{
			"a match is acknowledged though nobody was told", "pkg/matchmaking/announce.go",
			"if failure == nil {\n", "if failure == nil || e.id != \"\" {\n",
			"pkg/matchmaking TestBrokerTakesNothing",
		},
		{
			"the matches of a pass that broke off are not announced", "pkg/matchmaking/queue.lua",
			"if #entry > 0 then redis.call", "if ok and #entry > 0 then redis.call",
			"pkg/matchmaking TestPassThatBreaksOff",
		},
	}},
	{"a session ends when it should, and not before", []mutant{
		{
			"a sign-in survives the sign-out that overtook it", "pkg/session/store.go",
			"if ended {\n", "if ended && p.id == \"\" {\n",
			"pkg/session TestTombstone|TestCreateInsideEnd",
		},
		{
			"a sign-in's state works twice", "pkg/session/login.go",
			"{s.client.Get, s.client.GetDel}", "{s.client.Get, s.client.Get}",
			"pkg/session TestLoginIsTakenOnce",
		},
		{
			"a renewal brings back a session that was signed out", "pkg/session/renew.go",
			"if redis.call('GETRANGE', KEYS[1], 0, #ARGV[1] - 1) ~= ARGV[1] then", "if #ARGV[1] == 0 then",
			"pkg/session TestSignOutDuringRenewal",
		},
		{
			"a session that is used lives for ever", "pkg/session/store.go",
			"if remaining <= 0 {\n", "if remaining <= -time.Hour {\n",
			"pkg/session TestAbsoluteLimit",
		},
		{
			"a process goes on with a session that another one ended", "pkg/session/store.go",
			"if nonce == known.nonce {\n", "if nonce == known.nonce || nonce == \"\" {\n",
			"pkg/session TestLoadSeesOtherProcesses",
		},
		{
			"a Redis that is away ends sessions", "pkg/session/store.go",
			"return \"\", 0, unreachable(\"load a session\", err)", "return \"\", 0, ErrNone",
			"pkg/session TestRedisIsAway",
		},
		{
			"two processes renew at once", "pkg/session/renew.go",
			"if mine {\n", "if mine || owner != \"\" {\n",
			"pkg/session TestOneRenews",
		},
	}},
	{"nobody does what they may not", []mutant{
		{
			"a statement for one function is believed by all", "pkg/auth/statement.go",
			"AnyAudience: jwt.Audience{v.function}, ", "",
			"pkg/auth TestStatement",
		},
		{
			"a statement for one route is believed on all", "pkg/auth/statement.go",
			"known.call != (Call{v.function, method, path})", "known.call.Function != v.function",
			"pkg/auth TestStatement",
		},
		{
			"a caller's own statement is passed on", "functions/gateway/forward.go",
			"if slices.Contains(passedOn, name) || strings.HasPrefix(name, \"Ce-\") {", "if slices.Contains(passedOn, name) || strings.HasPrefix(name, \"Ce-\") || name == auth.StatementHeader {",
			"test/attack TestGatewayDropsStatements",
		},
		{
			"an ID token or a refresh token is an access token", "pkg/auth/bearer.go",
			"case claims.Type != \"\" && claims.Type != \"Bearer\":", "case claims.Type == \"none\":",
			"test/attack TestAttackAccessToken",
		},
		{
			"a token for another audience is taken", "pkg/auth/bearer.go",
			"&oidc.Config{ClientID: audience, ", "&oidc.Config{SkipClientIDCheck: audience != \"\", ",
			"test/signin TestBadToken",
		},
		{
			"another site's page writes with the browser's cookie", "functions/gateway/caller.go",
			"if r.Header.Get(\"X-CSRF\") != \"1\" || g.origin.Check(r) != nil {", "if g.origin == nil {",
			"test/attack TestAttackCSRF",
		},
		{
			"a session cookie that was planted beside the real one is used", "functions/gateway/cookies.go",
			"len(found) == 1 {", "len(found) > 0 {",
			"test/attack TestAttackFixation",
		},
		{
			"money leaves the account of somebody else", "pkg/transfer/take_key.sql",
			"(a.owner IS NULL OR giver.owner_user_id = a.owner)", "(a.owner IS NULL OR giver.owner_user_id IS NOT NULL)",
			"pkg/transfer TestKeys|TestTransfer",
		},
		{
			"a ticket can be cancelled by anybody", "pkg/matchmaking/cancel.lua",
			"if not text or ticket_of(ARGV[4], text).user ~= ARGV[5] then", "if not text then",
			"pkg/matchmaking TestTicketsThatAreNone|TestCancel",
		},
		{
			"a stream begins at somebody else's notification", "pkg/notification/since.go",
			"WHERE notification_id = $1 AND user_id = $2 AND sent_at IS NOT NULL`", "WHERE notification_id = $1 AND $2::text IS NOT NULL AND sent_at IS NOT NULL`",
			"pkg/notification TestSentAt",
		},
		{
			"after sign-in a browser is sent to any site", "functions/gateway/login.go",
			"if err != nil || parsed.Scheme != \"\" || parsed.Host != \"\" || parsed.User != nil ||\n\t\tstrings.HasPrefix(parsed.Path, \"//\") ||", "if err != nil ||",
			"test/attack TestAttackReturnTo",
		},
	}},
	{"under load, what is answered is right, and nobody waits for nothing", []mutant{
		{
			"a conflict that outlasts all retries is our fault", "pkg/postgres/postgres.go",
			"case Conflicted(err):\n", "case false:\n",
			"pkg/postgres TestRetryIsBounded",
		},
		{
			"a connection that died in silence leaves the others in their pool", "pkg/postgres/postgres.go",
			"if err != nil {\n\t\t\tdropAll()", "if false {\n\t\t\tdropAll()",
			"pkg/postgres TestSilentConnectionsAreDropped",
		},
		{
			"a caller that gives up closes the connections of all", "pkg/postgres/postgres.go",
			"context.WithTimeout(context.WithoutCancel(ctx), aliveWithin)", "context.WithTimeout(ctx, aliveWithin)",
			"pkg/postgres TestGivenUpBeforeItsConnectionAnswers",
		},
		{
			"a caller is refused for longer than it was told", "pkg/limit/limit.go",
			"now.Add(r.RetryAfter))", "now.Add(2*r.RetryAfter))",
			"pkg/limit TestFloodAsksRedisOnce",
		},
		{
			"any number of slow batches run", "pkg/groupcommit/groupcommit.go",
			"if b.calls != nil && q.slow < slowBatches {", "if b.calls != nil {",
			"pkg/groupcommit TestSlowBatches",
		},
		{
			"callers that have gone keep their places in a full queue", "pkg/groupcommit/groupcommit.go",
			"return other.ctx.Err() != nil })", "return other.ctx == nil })",
			"pkg/groupcommit TestFullOfTheGone",
		},
		{
			"a batch that failed runs again behind what came later", "pkg/groupcommit/groupcommit.go",
			"q.waiting = append(again, q.waiting...)", "q.waiting = append(q.waiting, again...)",
			"pkg/groupcommit TestAgainFirst",
		},
		{
			"writes of one key share a batch", "pkg/groupcommit/groupcommit.go",
			"&& !anyOf(c.keys, taken) && q.free(c.shared, kept)", "&& q.free(c.shared, kept)",
			"pkg/groupcommit TestKeys",
		},
		{
			"a function takes any number of requests", "functions/gateway/gateway.go",
			"make(desk, s.RequestsPerFunction)", "make(desk, 1000*s.RequestsPerFunction)",
			"test/api TestOverload",
		},
		{
			"the gateway takes any number of overviews", "functions/gateway/gateway.go",
			"g.own = g.places[e.Function.Name]", "g.own = make(desk, 1000)",
			"test/api TestOverloadOfTheGateway",
		},
		{
			"a server of NATS that answers nothing is kept", "pkg/jetstream/jetstream.go",
			"len(c.conn.Servers()) > 1", "len(c.conn.Servers()) > 9",
			"pkg/jetstream TestLeavesAServerThatIsOfNoUse",
		},
		{
			"a stream that nobody answers for reads as empty", "pkg/jetstream/consumer.go",
			"time.Since(began) >= unanswered {", "time.Since(began) >= 1000*unanswered {",
			"pkg/jetstream TestLeavesAServerThatIsOfNoUse",
		},
		{
			"limits end when Redis does", "pkg/limit/limit.go",
			"\treturn l.local.allow(p, key)\n", "\t_ = l.local.allow(p, key)\n\treturn Result{Allowed: true}\n",
			"pkg/limit TestRedisStopsAndComesBack",
		},
		{
			"each request waits for a Redis that hangs", "pkg/limit/redis.go",
			"if now < at {\n", "if now < at && l.shared == nil {\n",
			"pkg/limit TestRedisHangs",
		},
	}},
	{"a live stream misses nothing, and ends with its caller", []mutant{
		{
			"what commits late is behind what a stream has read", "pkg/notification/follow.go",
			"if settled := f.look.Add(-Overlap); settled", "if settled := f.look; settled",
			"pkg/notification TestFollowerSeesWhatCommitsLate",
		},
		{
			"a stream resumes from now", "functions/stream/stream.go",
			"return sent, true, err", "return sent.Add(now.Sub(sent)), true, err",
			"test/stream TestStreamFromLongAgo",
		},
		{
			"a stream looks only when it is nudged", "functions/stream/stream.go",
			"\t\t\tticket = false\n", "\t\t\tticket, news = false, false\n",
			"test/stream TestStreamWithoutNATS",
		},
		{
			"a stream outlives the session that opened it", "functions/gateway/forward.go",
			"defer g.sessions.Watch(g.cookies.session(r), cancel)()", "_ = g.sessions",
			"test/stream TestStreamEndsWithItsCaller",
		},
	}},
	{"what is private stays where it is", []mutant{
		{
			"webhooks reach the operator's own network", "pkg/webhook/client.go",
			"if !allowPrivate {", "if false {",
			"pkg/webhook TestPrivateAddressesAreRefused",
		},
		{
			"webhooks go through a proxy, which nobody checks", "pkg/webhook/client.go",
			"return &http.Transport{\n", "return &http.Transport{\n\t\tProxy: http.ProxyFromEnvironment,\n",
			"pkg/webhook TestNoProxy",
		},
		{
			"callers make up labels", "pkg/telemetry/metrics.go",
			`NewAllowKeysFilter("faas.name"`, `NewAllowKeysFilter("server.address", "faas.name"`,
			"test/telemetry TestGrantIsCounted",
		},
		{
			"callers decide what is recorded", "pkg/fn/observe.go",
			"return e.ContinuesTrace == nil ||", "return true ||",
			"test/telemetry TestCallersTraceIsLinked",
		},
		{
			"an erased person's notifications stay", "pkg/notification/retention.go",
			"WHERE user_id = $1 ORDER BY notification_id LIMIT $2)", "WHERE user_id = $1 AND status = 'FAILED' ORDER BY notification_id LIMIT $2)",
			"test/operations TestErase",
		},
	}},
	{"one identity is one user, with the roles of one token", []mutant{
		{
			"a race that is lost leaves a user behind", "pkg/account/register.go",
			"INSERT INTO account.users (user_id) SELECT user_id FROM met\n", "INSERT INTO account.users (user_id) SELECT $3::uuid\n",
			"pkg/account TestRegisterAtOnce",
		},
		{
			"changes of one user do not take turns", "pkg/account/change.go",
			"WHERE user_id = $1 FOR NO KEY UPDATE`", "WHERE user_id = $1`",
			"pkg/account TestLinkUpToTheLimit|TestRolesAreOfOneToken",
		},
		{
			"somebody else's identity counts as linked", "pkg/account/link.go",
			"case a.UserID != userID:", "case a.UserID == \"\":",
			"pkg/account TestLinkOneIdentityAtOnce",
		},
		{
			"roles that the issuer took away stay", "pkg/account/register.go",
			"WHERE user_id = $1 AND role <> ALL ($2::text[])", "WHERE user_id = $1 AND $2::text[] IS NULL",
			"pkg/account TestRolesAreReplaced",
		},
	}},
	{"what operators do is recorded, exact, and can be held", []mutant{
		{
			"two workers do the same batch", "pkg/act/act.go",
			"AND status = 'RUNNING' AND next_at <= now() FOR UPDATE SKIP LOCKED`", "AND status = 'RUNNING' AND next_at <= now()`",
			"pkg/act TestOneWorkerAtATime",
		},
		{
			"a batch that kills its process is tried for ever", "pkg/act/act.go",
			"status = CASE WHEN tries >= $2 THEN 'STOPPED'", "status = CASE WHEN tries >= $2 + 1000 THEN 'STOPPED'",
			"pkg/act TestActThatAlwaysFails",
		},
		{
			"an act does more than it may", "pkg/act/act.go",
			"int64(a.PerSecond), a.AtMost-a.Done))", "int64(a.PerSecond)))",
			"test/operations TestAtMost",
		},
		{
			"an act does not keep its rate", "pkg/act/act.go",
			"rest := max(p.Rest, time.Duration(float64(p.Done+p.Skipped)/float64(a.PerSecond)*float64(time.Second)))", "rest := p.Rest",
			"test/operations TestStopAndResume",
		},
		{
			"an identity is linked to an erased user", "pkg/account/link.go",
			"WHERE user_id = $1) BETWEEN 1 AND $4::bigint - 1", "WHERE user_id = $1) < $4::bigint",
			"pkg/account TestLinkToWhoIsErased",
		},
		{
			"an erasure takes the keys of the next user with that name", "pkg/transfer/retention.go",
			"(t.kind <> 'TRANSFER' OR a.owner_user_id = $2)", "(t.kind <> 'TRANSFER' OR a.owner_user_id <> '')",
			"test/operations TestErase",
		},
		{
			"an act takes rows that failed after it began", "pkg/lease/failed.go",
			"afterID, a.Begun(), examined", "afterID, latest, examined",
			"test/operations TestFailedAgain",
		},
	}},
	{"a match has one game server, or none and the reason", []mutant{
		{
			"a match whose answer was lost gets another server", "pkg/agones/allocate.go",
			"\t\t\t{map[string]string{fleetLabel: a.fleet, matchLabel: m.ID}, stateAllocated},\n", "",
			"pkg/agones TestLostAnswer",
		},
		{
			"a server does not know whose match it has", "pkg/agones/allocate.go",
			"Labels: map[string]string{matchLabel: m.ID},", "Labels: map[string]string{},",
			"pkg/agones TestSameMatchSameServer",
		},
		{
			"a fleet that is used up is an error like any other", "pkg/agones/answer.go",
			"case s.Code == resourceExhausted ||", "case",
			"pkg/agones TestNoServer",
		},
		{
			"players are told of a server without an address", "pkg/agones/answer.go",
			`case session.Server == "" || session.Address == "" || session.Ports == nil:`, `case session.Server == "":`,
			"pkg/agones TestBadAnswers",
		},
	}},
	{"RabbitMQ keeps what JetStream keeps", []mutant{
		{
			"an event that no queue takes is published", "pkg/rabbitmq/publisher.go",
			"Exchange, m.Subject, true, false, publishing(m))", "Exchange, m.Subject, false, false, publishing(m))",
			"pkg/rabbitmq TestQueueRemoved",
		},
		{
			"what is to come again is dropped", "pkg/rabbitmq/delivery.go",
			"_ = a.d.Nack(false, true)", "_ = a.d.Nack(false, false)",
			"pkg/rabbitmq TestContract",
		},
		{
			"a message is given up after three deliveries", "pkg/rabbitmq/rabbitmq.go",
			"int32(math.MaxInt32)", "int32(3 + 0*math.MaxInt8)",
			"pkg/rabbitmq TestContract",
		},
		{
			"nobody knows how often a message came", "pkg/rabbitmq/delivery.go",
			"delivered = 1 + uint64(count)", "delivered = min(1, uint64(count))",
			"pkg/rabbitmq TestContract",
		},
	}},
}
