/* Workers share a table by pkg/lease, and one row kills each worker that works on it.
 *
 * A statement of SQL is one step. Time is left out: a lease may end at any moment, and a
 * claim may see any of the due rows, as others may have locked the rest.
 */
#define ROWS 3
#define WORKERS 2
#define ATTEMPTS 2  /* LEASE_MAX_ATTEMPTS */
#define BAD 0       /* the row that kills */
#ifndef ACCIDENTS
#define ACCIDENTS 2 /* deaths, pauses past a lease and failures that no row causes */
#endif
#define NONE 0

mtype = { PENDING, IN_FLIGHT, DONE, FAILED };

typedef row {
	mtype status = PENDING;
	byte attempts;
	byte token;      /* of the claim that has it */
	byte size;       /* rows of that claim */
	bool over;       /* the lease is */
	/* What no statement reads. */
	byte holder;     /* the last claim */
	byte tries;      /* deaths alone, and failures */
}
row rows[ROWS];
byte working[WORKERS]; /* token of the claim at which each is */
byte accidents;

#define due(r) (rows[r].status == PENDING || rows[r].status == IN_FLIGHT && rows[r].over)
#define ended(r) (rows[r].status == DONE || rows[r].status == FAILED)
#define all_ended (ended(0) && ended(1) && ended(2))
#ifdef ANY_TOKEN
#define held(r) (taken[r] && rows[r].status == IN_FLIGHT)
#else
#define held(r) (taken[r] && rows[r].status == IN_FLIGHT && rows[r].token == claim)
#endif
/* A token that nobody remembers is as good as one that never was. */
#define unknown(t) (working[0] != t && working[1] != t && rows[0].token != t && rows[1].token != t && rows[2].token != t)

inline leave(r, next) {
	assert(rows[r].holder == claim); /* nobody changes what another holds */
	rows[r].status = next; rows[r].token = NONE; rows[r].size = 0; rows[r].over = false; rows[r].holder = NONE
}

/* Rows that died together are claimed apart from others, and half of them; a death counts
 * as an attempt only if the row was alone. */
inline take() {
	if
	:: due(0) -> first = 0
	:: due(1) -> first = 1
	:: due(2) -> first = 2
	fi;
	group = rows[first].token;
	most = (group == NONE -> ROWS : (rows[first].size > 1 -> rows[first].size / 2 : 1));
#ifdef ALL_AT_ONCE
	most = ROWS;
#endif
	claim = 1;
	do
	:: unknown(claim) -> break
	:: else -> claim++
	od;
	taken[first] = true;
	n = 1;
	for (r : 0 .. ROWS - 1) {
		if
		:: r != first && due(r) && rows[r].token == group && n < most -> taken[r] = true; n++
		:: true
		fi
	}
	for (r : 0 .. ROWS - 1) {
		if
		:: !taken[r]
		:: taken[r] ->
			if
#ifndef COUNT_ALL
			:: group != NONE && rows[r].size > 1 /* it died with others */
#endif
			:: else ->
				exhausted = (rows[r].attempts >= ATTEMPTS);
				rows[r].attempts = (exhausted -> ATTEMPTS : rows[r].attempts + 1)
			fi;
			rows[r].status = IN_FLIGHT; rows[r].token = claim; rows[r].size = n; rows[r].over = false; rows[r].holder = claim
		fi
	}
	working[me] = claim;
	first = 0; group = 0; most = 0; n = 0; r = 0
}

inline fail(r) {
	assert(rows[r].tries >= ATTEMPTS); /* what fails was tried often enough */
	leave(r, FAILED)
}

proctype worker(byte me) {
	byte claim, first, group, most, n, r;
	bool exhausted;
	bool taken[ROWS];
	do
	:: all_ended -> break
	:: atomic { due(0) || due(1) || due(2) -> take() }
		if
		:: !exhausted && taken[BAD] /* it dies */
		:: atomic { !exhausted && !taken[BAD] && accidents < ACCIDENTS -> accidents++ } /* it dies, too */
		:: !exhausted && !taken[BAD] || exhausted ->
			atomic {
				for (r : 0 .. ROWS - 1) {
					if
					:: held(r) && exhausted -> fail(r)
					:: held(r) && !exhausted -> leave(r, DONE)
					:: held(r) && !exhausted && accidents < ACCIDENTS -> /* the work failed */
						accidents++;
						rows[r].tries++;
						if
						:: rows[r].attempts < ATTEMPTS -> leave(r, PENDING)
						:: else -> fail(r)
						fi
					:: !held(r)
					fi
				}
			}
		fi;
		atomic { working[me] = NONE; claim = 0; r = 0; exhausted = false; taken[0] = false; taken[1] = false; taken[2] = false }
	od
}

/* The database's clock ends the leases of workers that are gone, and of some that are late. */
proctype clock() {
	byte r, token;
	do
	:: all_ended -> break
	:: atomic {
		if
		:: rows[0].status == IN_FLIGHT && !rows[0].over -> token = rows[0].token
		:: rows[1].status == IN_FLIGHT && !rows[1].over -> token = rows[1].token
		:: rows[2].status == IN_FLIGHT && !rows[2].over -> token = rows[2].token
		fi;
		if
		:: (working[0] == token || working[1] == token) && accidents < ACCIDENTS -> accidents++
		:: (working[0] == token || working[1] == token) -> token = NONE /* in time */
		:: else
		fi;
		for (r : 0 .. ROWS - 1) {
			if
			:: token != NONE && rows[r].token == token ->
				rows[r].over = true;
				rows[r].tries = rows[r].tries + (rows[r].size == 1)
			:: else
			fi
		}
		r = 0; token = NONE
		}
	od
}

init { atomic { run worker(0); run worker(1); run clock() } }

/* Each row ends whatever dies, and the one that kills ends FAILED. */
ltl ends { <> (all_ended && rows[BAD].status == FAILED) }
