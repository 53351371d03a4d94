/* Requests with one key for a transfer, as pkg/transfer runs them. The first two ask for the
 * same, the third for something else. Any of their processes may die, any answer of the
 * database may be lost, and the database itself is killed once.
 *
 * A transaction is one step, but TX1, which takes its locks in one and commits in another.
 * Time is left out: the watchdog may find a key old at any moment.
 */
#define REQUESTS 3
#define asks(i) (i / 2)     /* what request i is for */
#define NOBODY 255

mtype = { UNUSED, IN_PROGRESS, SUCCEEDED, FAILED };
mtype:tx1 = { NO, SENT, LOCKED, OVER };

/* What the database has. */
mtype key = UNUSED;
byte attempt = NOBODY;      /* the request that has the key */
byte hash = NOBODY;         /* what the key is for, once it is used */
byte moved[2];              /* how often the money of each transfer moved */
bool flushed = true;        /* everything that is committed is on the disk */

mtype:tx1 tx[REQUESTS] = NO;
#define locked (tx[0] == LOCKED || tx[1] == LOCKED || tx[2] == LOCKED)

mtype told = UNUSED;        /* how it ended, as some request was answered */

/* What a request is answered is true, and stays so. */
inline answer() {
	assert(hash == asks(me));
	assert(told == UNUSED || told == key);
	assert(moved[asks(me)] == (key == SUCCEEDED));
	told = key
}

proctype request(byte me) {
	bool mine;
	/* Transaction A, take_key: its commit does not wait for the disk. Where another
	 * request takes the key at this moment, this one is told to look again. */
	atomic {
		if
		:: key == UNUSED -> key = IN_PROGRESS; attempt = me; hash = asks(me); flushed = false; mine = true
		:: key != UNUSED && hash == asks(me) && key != IN_PROGRESS -> answer()
		:: key != UNUSED /* in progress, or reused for something else: no answer */
		fi
	}
	if
	:: !mine -> goto gone
	:: mine -> goto gone /* its process dies */
	:: atomic { mine && !locked -> /* TX1 found no connection: the key is given back */
		if
		:: key == IN_PROGRESS && attempt == me -> key = UNUSED; attempt = NOBODY; hash = NOBODY
		:: else
		fi;
		flushed = true }
		goto gone
	:: mine -> tx[me] = SENT
	fi;
	if
	:: goto gone
	:: atomic { tx[me] == OVER && key != IN_PROGRESS && key != UNUSED && hash == asks(me) -> answer() }
		goto gone
	:: true /* no answer comes: TX1 may be over, or under way, or begin later */
	fi;
	atomic { !locked -> /* endFailed waits for whoever has the key locked */
		if
		:: key == IN_PROGRESS && attempt == me -> key = FAILED; flushed = true
		:: else
		fi
	}
	atomic { !locked ->
		if
		:: (key == SUCCEEDED || key == FAILED) && hash == asks(me) -> answer()
		:: else /* the outcome is not known */
		fi
	}
gone:	skip
}

/* TX1, move_money, in the database; its process may be gone. */
proctype move(byte me) {
	bool mine;
	do
	:: tx[me] == SENT ->
		atomic {
#ifndef UNLOCKED
			!locked -> tx[me] = LOCKED;
#endif
			mine = (key == IN_PROGRESS && attempt == me);
#ifdef ANY_ATTEMPT
			mine = (key == IN_PROGRESS);
#endif
		}
		atomic {
			if
			:: tx[me] == OVER /* the database was killed */
			:: tx[me] != OVER && mine -> moved[asks(me)]++; key = SUCCEEDED; flushed = true
			:: tx[me] != OVER && mine -> key = FAILED; flushed = true /* too little money */
			:: tx[me] != OVER /* it was rolled back, or the key is not its own */
			fi;
			tx[me] = OVER
		}
		assert(moved[0] + moved[1] <= 1)
	:: tx[me] == OVER -> break
	:: timeout -> break
	od
}

/* It ends keys that have been in progress for long, but none that a TX1 has locked. */
proctype watchdog() {
	do
	:: atomic { key == IN_PROGRESS && !locked -> key = FAILED; flushed = true }
	:: timeout -> break
	od
}

/* What has not reached the disk may be lost; what runs is. */
proctype killer() {
	byte i;
	atomic {
		for (i : 0 .. REQUESTS - 1) {
			if
			:: tx[i] == LOCKED -> tx[i] = OVER
			:: else
			fi
		}
		if
		:: !flushed -> key = UNUSED; attempt = NOBODY; hash = NOBODY; flushed = true
		:: true
		fi
	}
}

init {
	byte i;
	atomic {
		for (i : 0 .. REQUESTS - 1) { run request(i); run move(i) }
#ifndef NO_WATCHDOG
		run watchdog();
#endif
		run killer()
	}
	timeout -> assert(key != IN_PROGRESS); /* no key stays so */
	assert(told == UNUSED || told == key)
}
