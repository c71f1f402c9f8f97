/* The leadership protocol of a Database, as controllers/agent/lease has it. README.md says what is modelled and what is not.
 *
 * One process takes one atomic step at a time: every interleaving of members, messages, API requests and the passing of time is a
 * path through the loop at the end. Each step names the Go function whose rule it is. All steps are optional, so a lost message, a
 * slow or frozen agent and an outage of the API are steps that are not taken.
 *
 * Compile-time switches, set by model_test.go:
 *   N, VOTERS, EMAX, W   members, the first voter list (a mask), the highest epoch, how many writes
 *   CRASHES, FORGETS, LOSSES   budgets: restarts; of these with the promise lost; of these with the volume lost
 *   RESUME      a leader's agent that restarts can serve at once (Facts.BackAtOnce)
 *   EXCHANGES   budget of agents whose program is exchanged under a running server, by one that may crash at once
 *   NOFENCE     no kernel fence: a frozen leader's server runs on after its deadline
 *   ASYNC       requests for grants and their answers are under way for any time
 *   CHANGES, WIPES   budgets of membership changes and of re-clones
 *   RESTORES    budget of a Lease that is deleted, or restored from a backup
 *   WITNESS     member 2 holds no data: it grants and supports; the two others go on alone once the Lease says so (mode preferred)
 *   RECOVERS    budget of a person's orders to lead alone, with what the member lacks accepted as lost
 *   CALM        from every state a calm schedule must end with a leader
 *   BUG_*       a planted bug
 */
#ifndef N
#define N 3
#endif
#ifndef VOTERS
#define VOTERS 7
#endif
#ifndef EMAX
#define EMAX 3
#endif
#ifndef W
#define W 1
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef FORGETS
#define FORGETS 0
#endif
#ifndef LOSSES
#define LOSSES 0
#endif

#define G 2      /* ticks of a grant: Config.Grant */
#define NONE 7

/* Stages (machine.go). Reading and asking are part of the step that stands; swapping is standing with a majority of support. */
#define IDLE 0
#define STANDING 1
#define CLAIMING 2
#define LEADING 3

/* What must hold, by a name that the test looks for. */
#define MUST(c, name) if :: (c) :: else -> printf(name); assert(false) fi

#define BIT(i) (1 << (i))
#define IN(i, list) (((list) >> (i)) & 1)
#define COUNT(list) (((list) & 1) + (((list) >> 1) & 1) + (((list) >> 2) & 1) + (((list) >> 3) & 1))
#ifdef BUG_SPEC_MAJORITY
#define MAJORITY(list) 2 /* of the three replicas in the spec */
#else
#define MAJORITY(list) (COUNT(list) / 2 + 1) /* record.go Majority */
#endif

#ifdef WITNESS
#define WIT 2
#define IS_WITNESS(j) ((j) == WIT)
#define WITH_COPIES(l) ((l) & ~BIT(WIT)) /* record.go Data() */
#else
#define IS_WITNESS(j) false
#define WITH_COPIES(l) (l)
#endif

/* What a member keeps on disk. */
byte pe[N], pc[N];        /* Promise.Epoch, Promise.Candidate */
bit  released[N];         /* Promise.Released */
bit  found[N];            /* voterState.found */
bit  data[N];             /* Facts.HasData */
byte rank[N], log[N];     /* Facts.Position: timeline, and the set of writes */

/* What it forgets when it restarts. */
byte bound[N], until[N];  /* voterState.bound, boundUntil: to whom, and the ticks left */
byte wait[N];             /* ticks until started+Grant */
bit  known[N];            /* storeState.known */
bit  uncounted[N];        /* !counted(), by the Lease as it was read */
byte seen[N];             /* store.seen.Record.Epoch */
bit  voided[N];           /* voterState.void is the promise */
bit  attached[N];         /* voterState.leader.leading, of whom it promised: upstream() */
byte stage[N];
byte epoch[N];            /* cand.epoch, lead.epoch */
bit  fresh[N];            /* the resourceVersion that it would swap against is the Lease's */
byte list[N];             /* the voters that it swaps against, or leads by */
byte support[N];          /* who answered with support that counts */
bit  led[N];              /* ledBy() > 0 */
bit  ended[N];            /* Machine.ended covers the promise */
bit  primary[N];          /* its server runs as primary */
byte grant[N * N];        /* leader i's count of j's grant: ticks left until its deadline by it, from when it asked */
byte out[N], outEpoch[N]; /* release: to whom it is still under way, and of which epoch */
#ifdef CHANGES
byte next[N];             /* lead.lists[1]: the list of a change whose outcome is unknown; 0 without */
byte sync[N];             /* the synchronous list in force in the server, with the leader itself */
byte changes = CHANGES;
#define NEXT(i) next[i]
#define SYNC(i) sync[i]
#else
#define NEXT(i) 0
#define SYNC(i) list[i]
#endif
#ifdef WIPES
byte wipes = WIPES;
#endif
#ifdef EXCHANGES
byte exchanges = EXCHANGES;
#endif
#ifdef RESUME
bit  stale[N];            /* the release that is under way is of a run before the one that claims */
/* voter.go onRelease(), rules.outrun: who has granted to a later run of the sender ignores a release of an earlier one. */
#ifdef BUG_ANY_RUN
#define OUTRUN(x, j, ep)
#else
#define OUTRUN(x, j, ep) \
	if :: stale[x] && outEpoch[x] == ep -> out[x] = out[x] & ~BIT(j); if :: out[x] == 0 -> outEpoch[x] = 0; stale[x] = 0 :: else fi :: else fi;
#endif
#define OF_THIS_RUN(x) stale[x] = 0;
#define OF_AN_EARLIER_RUN(x) if :: out[x] != 0 && outEpoch[x] == epoch[x] -> stale[x] = 1 :: else fi;
#else
#define OUTRUN(x, j, ep)
#define OF_THIS_RUN(x)
#define OF_AN_EARLIER_RUN(x)
#endif
#ifdef ASYNC
/* A request for a grant from i to j: 0 none, 1 on its way, 2 its answer is; with the ticks left since it was sent. */
byte asked[N * N], askedLeft[N * N], askedEpoch[N * N];
#endif

#ifdef RECOVERS
byte recovers = RECOVERS;
bit  ordered[N];          /* recovers() */
byte heard[N];            /* cand.answers: who said that it is free, or is known not to run */
bit  lateOrdered;         /* the late swap is a recovery's */
#endif

/* The Lease, and one swap that may land late. */
bit  has = 1;
byte leaseEpoch, leaseLeader, leaseList;
bit  late;
byte lateEpoch, lateLeader, lateList;
#ifdef RESTORES
byte restores = RESTORES;
byte leaseVersion, lateVersion;
byte version[N];          /* of the record that it swaps against, or leads by */
byte raising[N];          /* the epoch that a leader is about to take; 0 without */
byte told[N];             /* which voters granted at the record's version */
byte knownEpoch[N], knownVersion[N];         /* Promise.Lease, Promise.Version in memory */
byte knownEpochDisk[N], knownVersionDisk[N]; /* and on disk */
bit  backup; byte backupEpoch, backupLeader, backupList, backupVersion;
#endif

#ifdef WITNESS
bit leaseDegraded, lateDegraded; /* Record.Degraded */
bit degraded[N];          /* by the record that it swaps against, or leads by */
bit strict[N];            /* step.strict: every commit waits again */
bit marked[N];            /* step.at is taken */
bit sent[N];              /* change.active: the swap that takes the word back, whose outcome is unknown */
byte mark[N];
#endif

byte crashes = CRASHES, forgets = FORGETS, losses = LOSSES;
byte writes;              /* how many were begun */
byte acked;               /* the set that a client was told is safe */
byte ledBy[EMAX + 1];     /* who leads, or led, at the epoch; NONE: nobody */

/* Scratch. Backtracking does not restore what a d_step changed of these: the ones of d_steps are used nowhere else, or set anew. */
hidden byte i, j, k, e, m, n, w, p, q;

#define AT(i, j) ((i) * N + (j))
#if N == 2
#define HELD(i, l, x) ((IN(0, l) && grant[AT(i, 0)] >= x) + (IN(1, l) && grant[AT(i, 1)] >= x))
#elif N == 3
#define HELD(i, l, x) ((IN(0, l) && grant[AT(i, 0)] >= x) + (IN(1, l) && grant[AT(i, 1)] >= x) + (IN(2, l) && grant[AT(i, 2)] >= x))
#else
#define HELD(i, l, x) ((IN(0, l) && grant[AT(i, 0)] >= x) + (IN(1, l) && grant[AT(i, 1)] >= x) + (IN(2, l) && grant[AT(i, 2)] >= x) + (IN(3, l) && grant[AT(i, 3)] >= x))
#endif

/* deadlineBy() and deadline(): at least x ticks away, by every list that may be the one in the Lease. */
#define LASTS_BY(i, l, x) (HELD(i, l, x) >= MAJORITY(l))
#define LASTS(i, x) (LASTS_BY(i, list[i], x) && (NEXT(i) == 0 || LASTS_BY(i, NEXT(i), x)))
#define ALONE(i) (list[i] == BIT(i) && NEXT(i) == 0)

/* promised(): the voter may deal with candidate c at epoch x. */
#ifdef BUG_EXPIRES_BACK
#define TOO_LOW(j, x) false
#else
#define TOO_LOW(j, x) ((x) < pe[j])
#endif
#ifdef BUG_NEVER_MOVES_ON
#define STAYS(j, c) (pc[j] != (c) && pc[j] != NONE && !voided[j])
#else
#define STAYS(j, c) false
#endif
#define PROMISED(j, x, c) (TOO_LOW(j, x) || STAYS(j, c) || ((x) == pe[j] && (pc[j] != (c) || voided[j])))

/* tied(): the voter cannot leave whom it may have granted to. promiseReleased() and counted() are in it. */
#ifdef BUG_NO_WAIT
#define WAIT_LEFT(j) false
#else
#define WAIT_LEFT(j) (wait[j] > 0)
#endif
#define WAITS(j, c) (WAIT_LEFT(j) && pc[j] != (c) && pc[j] != j && !(voided[j] && pe[j] > 0) && (found[j] || !uncounted[j]))
#define TIED(j, c) (stage[j] == LEADING || (!found[j] && !known[j]) || (bound[j] != (c) && until[j] > 0) || WAITS(j, c))

/* Position.Holds(): what i has covers what j has. Logs of one rank are prefixes of each other. */
#define COVERS(i, j) (rank[i] > rank[j] || (rank[i] == rank[j] && log[i] >= log[j]))
#define SAME_LOG(i, j) (rank[i] == rank[j] && log[i] == log[j])

#ifdef RESTORES
#define RESTORED(i) (!has || leaseEpoch < knownEpoch[i] || OLDER_VERSION(i))
#ifdef BUG_VERSION_FORGOTTEN
#define OLDER_VERSION(i) false
#else
#define OLDER_VERSION(i) (leaseVersion < knownVersion[i])
#endif
#else
#define RESTORED(i) false
#endif

/* mine(): the Lease and the promise both name this member, and it has not ended that leadership. */
#define MINE(i) (has && !RESTORED(i) && leaseLeader == i && leaseEpoch == pe[i] && pc[i] == i && !released[i] && !ended[i])

/* A client could be answered by this server as a primary. */
#define SERVES(i) (primary[i] && LASTS(i, 1))

#ifdef RESUME
#define CAN_RESUME true
#else
#define CAN_RESUME false
#endif
#ifdef CHANGES
#define LEARNERS true /* members(): who may become a voter is asked too */
#define SYNC_IN_FORCE(x) sync[x] = list[x];
#else
#define LEARNERS false
#define SYNC_IN_FORCE(x)
#endif
#if defined(RESTORES) && defined(CHANGES)
#define LIST_VERSION(x) leaseVersion = version[x] + 1;
#define VERSION_KNOWN(x) version[x] = leaseVersion; told[x] = 0; KNOWS(x, epoch[x], leaseVersion)
#else
#define LIST_VERSION(x)
#define VERSION_KNOWN(x)
#endif
#ifdef CHANGES
#define FORGET_NEXT(x) next[x] = 0;
#else
#define FORGET_NEXT(x)
#endif
#ifdef RESTORES
#define BASE_VERSION(x) version[x] = leaseVersion;
#define SWAPPED(x) leaseVersion = version[x] + 1; version[x] = leaseVersion;
#define LATE_SWAPPED has = 1; leaseVersion = lateVersion;
#ifdef BUG_VERSION_FORGOTTEN
#define SAW_NO_LATER(i, j) true
#else
#define SAW_NO_LATER(i, j) (version[i] >= knownVersion[j])
#endif
#else
#define BASE_VERSION(x)
#define SWAPPED(x)
#define LATE_SWAPPED
#define SAW_NO_LATER(i, j) true
#endif

#ifdef WITNESS
#ifdef BUG_ANYBODY_AFTER_FEWER
#define ELECTABLE(i) true
#else
#define ELECTABLE(i) (!leaseDegraded || leaseLeader == i) /* record.go Electable() */
#endif
#ifdef BUG_FEWER_BEFORE_THE_LEASE
#define GOES_ON(i) true
#else
#define GOES_ON(i) (degraded[i] && !strict[i]) /* fewer.go mayGoOn() */
#endif
#ifdef BUG_WITNESS_IS_A_COPY
#define FLUSHED(k, x, w) (pc[k] == x && (IS_WITNESS(k) || (attached[k] && IN(w, log[k]))))
#define COPIES(l) (l)
#else
#define FLUSHED(k, x, w) (attached[k] && pc[k] == x && IN(w, log[k]))
#define COPIES(l) WITH_COPIES(l)
#endif
#ifdef BUG_BACK_BEFORE_COMMITS_WAIT
#define WAITS_AGAIN(i) true
#else
#define WAITS_AGAIN(i) strict[i]
#endif
#define SAME_RECORD(i) leaseDegraded = degraded[i];
#define BASE_DEGRADED(i) degraded[i] = leaseDegraded;
#define LATE_DEGRADED leaseDegraded = lateDegraded;
#define SET_LATE_DEGRADED(x, d) lateDegraded = (d);
#define LATE_DEGRADED_GONE lateDegraded = 0;
#define FORGET_STEP(x) degraded[x] = 0; strict[x] = 0; marked[x] = 0; mark[x] = 0; sent[x] = 0;
#define OWN_LEASE(i) (stage[i] == LEADING && primary[i] && fresh[i] && LASTS(i, 1))
/* fewer.go progressStep(), progressRestore(); whether anybody follows is nobody's word to rely on, so each step may always be taken */
#define CAN_DEGRADE(i) (OWN_LEASE(i) && !degraded[i] && !leaseDegraded)
#define CAN_KNOW_STEP(i) (OWN_LEASE(i) && degraded[i] != leaseDegraded)
#define CAN_BE_STRICT(i) (OWN_LEASE(i) && degraded[i] && leaseDegraded && !strict[i] && WAITS_AGAIN_AT_ALL)
#ifdef BUG_BACK_BEFORE_COMMITS_WAIT
#define WAITS_AGAIN_AT_ALL false
#else
#define WAITS_AGAIN_AT_ALL true
#endif
#define CAN_MARK(i) (OWN_LEASE(i) && degraded[i] && leaseDegraded && WAITS_AGAIN(i) && !marked[i])
#define OTHER(i) (1 - (i))
#define HELD_ALL(i) (attached[OTHER(i)] && pc[OTHER(i)] == i && rank[OTHER(i)] == rank[i] && (mark[i] & ~log[OTHER(i)]) == 0)
#define CAN_RESTORE(i) (OWN_LEASE(i) && degraded[i] && leaseDegraded && marked[i] && HELD_ALL(i))
#define CAN_RELAX(i) (stage[i] == LEADING && primary[i] && LASTS(i, 1) && strict[i] && degraded[i] && !sent[i]) /* pushChange() goes first */
#else
#define ELECTABLE(i) true
#define GOES_ON(i) false
#define FLUSHED(k, x, w) (attached[k] && pc[k] == x && IN(w, log[k]))
#define COPIES(l) (l)
#define SAME_RECORD(i)
#define BASE_DEGRADED(i)
#define LATE_DEGRADED
#define SET_LATE_DEGRADED(x, d)
#define LATE_DEGRADED_GONE
#define FORGET_STEP(x)
#endif

/* wouldSupport(), led(): a voter without data supports whom the Lease names as leader, with its data. */
#ifdef BUG_DATALESS
#define BLIND(i) true
#else
#define BLIND(i) led[i]
#endif
#define MAY_SUPPORT_BLIND(i, j) (data[j] || IS_WITNESS(j) || (BLIND(i) && fresh[i]))

#ifdef CHANGES
#define FORGET_CHANGE(x) next[x] = 0; sync[x] = 0;
#else
#define FORGET_CHANGE(x)
#endif
#ifdef RESTORES
#define FORGET_RAISE(x) raising[x] = 0; version[x] = 0; told[x] = 0;
#define SET_LATE_VERSION(x) lateVersion = version[x] + 1;
#define HAS_TOLD(i, j) told[i] = told[i] | BIT(j)
#define KEEP_KNOWN(j) knownEpochDisk[j] = knownEpoch[j]; knownVersionDisk[j] = knownVersion[j];
#define KNOWS(j, x, v) \
	if :: knownEpoch[j] < (x) -> knownEpoch[j] = (x) :: else fi; \
	if :: knownVersion[j] < (v) -> knownVersion[j] = (v) :: else fi;
#else
#define FORGET_RAISE(x)
#define SET_LATE_VERSION(x)
#define HAS_TOLD(i, j) skip
#define KEEP_KNOWN(j)
#define KNOWS(j, x, v)
#endif
#ifdef ASYNC /* answers are of a run and an epoch; requests stay on their way */
#define FORGET_ASKED(x, k) if :: asked[AT(x, k)] == 2 -> asked[AT(x, k)] = 0; askedLeft[AT(x, k)] = 0; askedEpoch[AT(x, k)] = 0 :: else fi;
#else
#define FORGET_ASKED(x, k)
#endif
#ifdef RESTORES
#define LATE_VERSION_GONE lateVersion = 0;
#else
#define LATE_VERSION_GONE
#endif
#ifdef NOFENCE
#define MAY_ANSWER(x) true
#else
#define MAY_ANSWER(x) LASTS(x, 1)
#endif
#ifdef RESTORES
#define FORGET_KNOWN(x) knownEpoch[x] = knownEpochDisk[x]; knownVersion[x] = knownVersionDisk[x];
#define LOSE_KNOWN(x) knownEpoch[x] = 0; knownVersion[x] = 0; knownEpochDisk[x] = 0; knownVersionDisk[x] = 0;
#else
#define FORGET_KNOWN(x)
#define LOSE_KNOWN(x)
#endif
/* Some member, or some pair of two, of which C holds; not to be taken if there is none. */
#if N == 2
#define SOME(C) if :: C(0) -> i = 0 :: C(1) -> i = 1 fi
#define PAIR(C) if :: C(0, 1) -> i = 0; j = 1 :: C(1, 0) -> i = 1; j = 0 fi
#elif N == 3
#define SOME(C) if :: C(0) -> i = 0 :: C(1) -> i = 1 :: C(2) -> i = 2 fi
#define PAIR(C) if \
	:: C(0, 1) -> i = 0; j = 1 :: C(0, 2) -> i = 0; j = 2 :: C(1, 0) -> i = 1; j = 0 \
	:: C(1, 2) -> i = 1; j = 2 :: C(2, 0) -> i = 2; j = 0 :: C(2, 1) -> i = 2; j = 1 fi
#else
#define SOME(C) if :: C(0) -> i = 0 :: C(1) -> i = 1 :: C(2) -> i = 2 :: C(3) -> i = 3 fi
#define PAIR(C) if \
	:: C(0, 1) -> i = 0; j = 1 :: C(0, 2) -> i = 0; j = 2 :: C(0, 3) -> i = 0; j = 3 \
	:: C(1, 0) -> i = 1; j = 0 :: C(1, 2) -> i = 1; j = 2 :: C(1, 3) -> i = 1; j = 3 \
	:: C(2, 0) -> i = 2; j = 0 :: C(2, 1) -> i = 2; j = 1 :: C(2, 3) -> i = 2; j = 3 \
	:: C(3, 0) -> i = 3; j = 0 :: C(3, 1) -> i = 3; j = 1 :: C(3, 2) -> i = 3; j = 2 fi
#endif

/* When each step may be taken. */
#define ASKS(i) (stage[i] == CLAIMING || (stage[i] == LEADING && (LASTS(i, 1) || ALONE(i))))
#define CAN_GRANT_SELF(i) (ASKS(i) && pe[i] == epoch[i] && pc[i] == i && !voided[i] && (bound[i] == i || until[i] == 0) && grant[AT(i, i)] < G)
#define CAN_ASK(i, j) (ASKS(i) && (IN(j, list[i] | NEXT(i)) || LEARNERS) && CAN_GRANT(i, j, epoch[i]))
#define CAN_GRANT(i, j, x) (!PROMISED(j, x, i) && !TIED(j, i) && seen[j] <= x)
#define OWN_EPOCH(i) (pe[i] > leaseEpoch -> pe[i] : leaseEpoch)
#define CAN_STAND(i) (stage[i] == IDLE && data[i] && ELECTABLE(i) && has && IN(i, leaseList) && !RESTORED(i) && !MINE(i) && OWN_EPOCH(i) < EMAX \
	&& (bound[i] == i || until[i] == 0) && (!WAIT_LEFT(i) || pc[i] == i || (voided[i] && pe[i] > 0)))
#define CAN_SUPPORT(i, j) (stage[i] == STANDING && IN(j, list[i]) && !IN(j, support[i]) \
	&& !PROMISED(j, epoch[i], i) && !TIED(j, i) && MAY_SUPPORT_BLIND(i, j) && SAW_NO_LATER(i, j))
#define CAN_SWAP(i) (stage[i] == STANDING && COUNT(support[i]) >= MAJORITY(list[i]) && fresh[i])
#ifdef BUG_SWAP_ENTITLES
#define CAN_PROMOTE(i) (stage[i] == CLAIMING)
#else
#define CAN_PROMOTE(i) (stage[i] == CLAIMING && LASTS(i, 1))
#endif
#define CAN_GIVE_UP(i) (stage[i] == STANDING || stage[i] == CLAIMING)
#define CAN_STOP(i) (stage[i] == LEADING)
#define CAN_HEAR(i, j) IN(j, out[i])
#define CAN_CLAIM_AGAIN(i) (stage[i] == IDLE && MINE(i) && (leaseList != BIT(i) || data[i]))
#define CAN_LOOK(i) (stage[i] == IDLE && !known[i])
#define CAN_WRITE(i) (primary[i] && MAY_ANSWER(i) && writes < W)
#define CAN_CRASH(i) (crashes > 0)
/* kept.go unquiet() */
#define CAN_EXCHANGE(i) (exchanges > 0 && out[i] == 0 && NEXT(i) == 0 && NOT_RAISING(i) \
	&& ((stage[i] == IDLE && until[i] > 0) || (stage[i] == LEADING && primary[i] && LASTS(i, 1))))
/* 0002, "not safe, and said so": a promise is not lost while the candidate that it was made to is at work. README.md has the schedule. */
#ifdef FORGETS_AT_WORK
#define MAY_FORGET(i) true
#else
#define MAY_FORGET(i) (pc[i] == NONE || pc[i] == i || epoch[pc[i]] != pe[i] || (stage[pc[i]] != STANDING && stage[pc[i]] != CLAIMING))
#endif
/* A release that the voter would ignore, now and later. With ASYNC a request of that epoch may come before it. */
#ifdef ASYNC
#define NOTHING_TO_HEAR(i, j) (outEpoch[i] < pe[j])
#else
#define NOTHING_TO_HEAR(i, j) (pe[j] != outEpoch[i] || pc[j] != i)
#endif
#define CAN_SEND(i, j) (ASKS(i) && IN(j, list[i]) && askedLeft[AT(i, j)] < G)
#define CAN_ARRIVE(i, j) (asked[AT(i, j)] == 1 && CAN_GRANT(i, j, askedEpoch[AT(i, j)]))
#define CAN_ANSWER(i, j) (asked[AT(i, j)] == 2)
#define CAN_RECEIVE(i, j) (!IS_WITNESS(j) && attached[j] && stage[j] == IDLE && pc[j] == i && primary[i] && (!data[j] || !SAME_LOG(j, i)))

#ifdef CHANGES
/* change.go progressMembers(), fitsMark(): a mark is as old as the leadership at most, so who has its timeline holds it. */
#define HOLDS_MARK(i, j) (j == i || (data[j] && rank[j] == rank[i]))
#if N == 3
#define HOLDERS(i, l) ((IN(0, l) && HOLDS_MARK(i, 0)) + (IN(1, l) && HOLDS_MARK(i, 1)) + (IN(2, l) && HOLDS_MARK(i, 2)))
#else
#define HOLDERS(i, l) ((IN(0, l) && HOLDS_MARK(i, 0)) + (IN(1, l) && HOLDS_MARK(i, 1)) + (IN(2, l) && HOLDS_MARK(i, 2)) + (IN(3, l) && HOLDS_MARK(i, 3)))
#endif
#define LEADS(i) (stage[i] == LEADING && primary[i] && (LASTS(i, 1) || ALONE(i)))
#define CAN_CHANGE(i, j) (changes > 0 && LEADS(i) && next[i] == 0 && sync[i] == list[i] && fresh[i] && NOT_RAISING(i) && TOLD(i) \
	&& (IN(j, list[i]) || (HOLDS_MARK(i, j) && grant[AT(i, j)] > 0)) \
	&& HOLDERS(i, list[i] ^ BIT(j)) >= MAJORITY(list[i] ^ BIT(j)) && LASTS_BY(i, list[i] ^ BIT(j), 1))
#define LANDED(i) (leaseEpoch == epoch[i] && leaseLeader == i && leaseList == next[i])
#define CAN_LAND(i) (stage[i] == LEADING && next[i] != 0 && fresh[i] && !LANDED(i) && NOT_RAISING(i))
#define CAN_KNOW(i) (LEADS(i) && next[i] != 0 && has && LANDED(i))
#define CAN_WITHDRAW(i) (CAN_LAND(i) && LASTS(i, 1))
#define CAN_APPLY(i) (LEADS(i) && sync[i] != list[i])
#define CAN_WIPE(i) (wipes > 0 && has && stage[i] == IDLE && !IN(i, leaseList) && data[i])
#endif
#ifdef RESTORES
#define NOT_RAISING(i) (raising[i] == 0)
#define TOLD(i) (COUNT(told[i] & list[i]) >= MAJORITY(list[i]))
#ifdef BUG_VERSION_FORGOTTEN
#define LOWER(i) (!has || leaseEpoch < epoch[i])
#else
#define LOWER(i) (!has || leaseEpoch < epoch[i] || (leaseEpoch == epoch[i] && leaseVersion < version[i]))
#endif
#define HIGHER(i) (pe[0] > epoch[i] || pe[1] > epoch[i] || pe[2] > epoch[i])
#define TOP(a, b) ((a) > (b) -> (a) : (b))
#define RAISED(i) (TOP(TOP(TOP(epoch[i], leaseEpoch), TOP(pe[0], pe[1])), pe[2]) + 1)
#define CAN_RAISE(i) (stage[i] == LEADING && primary[i] && LASTS(i, 1) && raising[i] == 0 && RAISED(i) <= EMAX \
	&& (LOWER(i) || (HIGHER(i) && fresh[i] && NEXT(i) == 0)))
#define CAN_LAND_RAISE(i) (stage[i] == LEADING && raising[i] != 0 && fresh[i] && (LASTS(i, 1) || ALONE(i)))
#else
#define NOT_RAISING(i) true
#define TOLD(i) true
#endif

#ifdef CALM
#if N == 2
#define TOP_PROMISE (pe[0] > pe[1] -> pe[0] : pe[1])
#define WITH_DATA (data[0] * BIT(0) + data[1] * BIT(1))
#elif N == 3
#define TOP_PROMISE (pe[0] > pe[1] -> (pe[0] > pe[2] -> pe[0] : pe[2]) : (pe[1] > pe[2] -> pe[1] : pe[2]))
#define WITH_DATA (data[0] * BIT(0) + data[1] * BIT(1) + data[2] * BIT(2))
#endif
#ifdef CHANGES
#define NO_CHANGES changes = 0;
#else
#define NO_CHANGES
#endif
#ifdef WITNESS
#define NOT_DEGRADED leaseDegraded = 0; lateDegraded = 0;
#else
#define NOT_DEGRADED
#endif
#define CAN_CALM (has && TOP_PROMISE < EMAX && leaseEpoch < EMAX && (LOSSES == 0 || COUNT(WITH_DATA & leaseList) >= MAJORITY(leaseList)))
#endif

#ifdef RECOVERS
/* recover.go contradicted(): free by its own word, or not running by the manager's. That word is believed of any that is idle, bound or
 * not, once it has restarted; so a member comes back while the order is under way. */
#ifdef BUG_RECOVER_ASKS_NOBODY
#define FREE(j) true
#elif defined(BUG_RECOVER_BESIDE_CANDIDATES)
#define FREE(j) (stage[j] != LEADING && until[j] == 0)
#else
#define FREE(j) (stage[j] == IDLE && until[j] == 0)
#endif
#define EVERYBODY ((1 << N) - 1)
#define CAN_ORDER(i) (recovers > 0 && stage[i] == IDLE && data[i] && has && !MINE(i) && OWN_EPOCH(i) < EMAX)
#define CAN_TELL(i, j) (ordered[i] && fresh[i] && stage[i] == IDLE && !IN(j, heard[i]) && FREE(j))
#define CAN_RECOVER(i) (ordered[i] && fresh[i] && stage[i] == IDLE && (heard[i] | BIT(i)) == EVERYBODY && OWN_EPOCH(i) < EMAX && !TIED(i, i))
#define FORGET_ORDER(x) ordered[x] = 0; heard[x] = 0;
#define ASK_AGAIN(x) heard[x] = 0;
#define SET_LATE_ORDERED(x) lateOrdered = ordered[x];
#define LATE_ORDER_GONE lateOrdered = 0;
#define ACCEPTS(x) if :: ordered[x] -> acked = acked & log[x] :: else fi; FORGET_ORDER(x)
#define LATE_ACCEPTS if :: lateOrdered -> acked = acked & log[lateLeader] :: else fi;
#else
#define FORGET_ORDER(x)
#define ASK_AGAIN(x)
#define SET_LATE_ORDERED(x)
#define LATE_ORDER_GONE
#define ACCEPTS(x)
#define LATE_ACCEPTS
#endif

/* Whatever a candidate or leader has under way may land after it has moved on. */
inline leaves(x) {
	if
	:: !late && stage[x] == STANDING && fresh[x] && COUNT(support[x]) >= MAJORITY(list[x]) ->
		late = 1; lateEpoch = epoch[x]; lateLeader = x; lateList = list[x];
		SET_LATE_DEGRADED(x, degraded[x])
		SET_LATE_VERSION(x)
#ifdef WITNESS
	:: !late && CAN_DEGRADE(x) ->
		late = 1; lateEpoch = epoch[x]; lateLeader = x; lateList = list[x]; lateDegraded = 1
	:: !late && CAN_RESTORE(x) ->
		late = 1; lateEpoch = epoch[x]; lateLeader = x; lateList = list[x]; lateDegraded = 0
#endif
		SET_LATE_ORDERED(x)
#ifdef CHANGES
	:: !late && stage[x] == LEADING && next[x] != 0 && fresh[x] && !LANDED(x) && NOT_RAISING(x) ->
		late = 1; lateEpoch = epoch[x]; lateLeader = x; lateList = next[x];
		SET_LATE_VERSION(x)
#endif
#ifdef RESTORES
	:: !late && stage[x] == LEADING && raising[x] != 0 && fresh[x] ->
		late = 1; lateEpoch = raising[x]; lateLeader = x; lateList = list[x];
		lateVersion = (version[x] > leaseVersion -> version[x] : leaseVersion) + 1
#endif
	:: true
	fi
}

inline becomesIdle(x) {
	d_step {
		stage[x] = IDLE; epoch[x] = 0; list[x] = 0; support[x] = 0; led[x] = 0; fresh[x] = 0; primary[x] = 0;
		for (k : 0 .. N - 1) {
			grant[AT(x, k)] = 0;
			FORGET_ASKED(x, k)
		}
		FORGET_CHANGE(x)
		FORGET_RAISE(x)
		FORGET_STEP(x)
		FORGET_ORDER(x)
		k = 0
	}
}

/* promise.go persist(), voter.go keeps(): on disk before anybody is told. Beside it, what cannot matter any more is made equal. */
inline promises(j, x, c) {
	d_step {
		if
		:: pe[j] != x || pc[j] != c ->
			pe[j] = x; pc[j] = c; released[j] = 0; voided[j] = 0; attached[j] = 0; ended[j] = 0;
			for (k : 0 .. N - 1) {
				if :: IN(j, out[k]) && bound[j] != k && NOTHING_TO_HEAR(k, j) -> out[k] = out[k] & ~BIT(j) :: else fi;
				if :: out[k] == 0 -> outEpoch[k] = 0 :: else fi
			}
		:: else
		fi;
		found[j] = 1; known[j] = 1; uncounted[j] = 0;
		if :: seen[j] <= pe[j] -> seen[j] = 0 :: else fi;
		KEEP_KNOWN(j)
		k = 0
	}
}

/* candidate.go end(), release.go startRelease(). The flag may not reach the disk before a crash. */
inline ends(x, voters) {
	d_step {
		out[x] = (voters) & ~BIT(x); outEpoch[x] = epoch[x]; OF_THIS_RUN(x)
		for (k : 0 .. N - 1) {
			if :: IN(k, out[x]) && bound[k] != x && NOTHING_TO_HEAR(x, k) -> out[x] = out[x] & ~BIT(k) :: else fi
		}
		if :: out[x] == 0 -> outEpoch[x] = 0 :: else fi;
		k = 0
	}
	if
	:: pe[x] == epoch[x] && pc[x] == x ->
		voided[x] = 1;
		if
		:: released[x] = 1
		:: crashes > 0 -> ended[x] = 1
		fi
	:: else
	fi;
	if :: bound[x] == x -> bound[x] = NONE; until[x] = 0 :: else fi;
	becomesIdle(x)
}

/* The Lease changes: no other resourceVersion is current, and nothing under way lands any more. */
inline leaseChanges(x, c, l) {
	d_step {
		leaseEpoch = x; leaseLeader = c; leaseList = l;
		for (k : 0 .. N - 1) { fresh[k] = 0 }
		late = 0; lateEpoch = 0; lateLeader = 0; lateList = 0;
		LATE_DEGRADED_GONE
		LATE_VERSION_GONE
		LATE_ORDER_GONE
		k = 0
	}
}

/* S2: each epoch has one leader that won it, and is given to one only. A restored Lease gives an epoch again, but nobody wins it twice.
 * A raise that a restore undoes before anybody hears of it is no win: see README.md. */
inline leadsAt(x, c) {
	MUST(ledBy[x] == NONE || ledBy[x] == c, "VIOLATED S2: an epoch has two leaders\n");
	ledBy[x] = c
}
inline gives(x, c) {
#ifndef RESTORES
	leadsAt(x, c)
#else
	skip
#endif
}

/* A synchronous commit: decide.go leaderDecision() says how many must have flushed. */
inline settles(x) {
	d_step {
	if
	:: primary[x] && MAY_ANSWER(x) ->
		for (w : 0 .. W - 1) {
			if
			:: IN(w, log[x]) && !IN(w, acked) ->
				n = 0;
				for (k : 0 .. N - 1) {
					if :: k != x && IN(k, COPIES(SYNC(x))) && FLUSHED(k, x, w) -> n++ :: else fi
				}
				if
				:: n >= COUNT(WITH_COPIES(SYNC(x))) / 2 || GOES_ON(x) ->
					acked = acked | BIT(w);
					printf("%d acknowledges %d\n", x, w);
					/* S1: no later leader lacks it. */
					for (k : 0 .. N - 1) {
						MUST(k == x || !primary[k] || rank[k] <= rank[x] || IN(w, log[k]), "VIOLATED S1: acknowledged by an old leader, and a later one lacks it\n")
					}
				:: else
				fi
			:: else
			fi
		}
	:: else
	fi;
		k = 0
	}
}

/* voter.go onGrant(), where it grants what leader x asked at epoch ep. */
inline onGrant(x, j, ep) {
	if
	:: stage[j] == STANDING || stage[j] == CLAIMING -> leaves(j); becomesIdle(j)
	:: else
	fi;
	ASK_AGAIN(j)
	KNOWS(j, ep, version[x])
	promises(j, ep, x);
	bound[j] = x; until[j] = G;
	OUTRUN(x, j, ep)
	if :: primary[x] && epoch[x] == ep && !IS_WITNESS(j) -> attached[j] = 1 :: else fi
}

inline restarts(x) {
	leaves(x);
	becomesIdle(x);
	bound[x] = NONE; until[x] = 0; wait[x] = G; known[x] = found[x]; uncounted[x] = 0; seen[x] = 0; voided[x] = 0; attached[x] = 0; ended[x] = 0;
	FORGET_KNOWN(x)
}

inline losesPromise(x) {
	pe[x] = 0; pc[x] = NONE; released[x] = 0; found[x] = 0; known[x] = 0;
#ifndef FORGETS_AT_WORK /* nor are releases still under way after the wait for it */
	out[x] = 0; outEpoch[x] = 0;
#endif
	LOSE_KNOWN(x)
}

/* store.go leaseRead() */
inline reads(x) {
	d_step {
		seen[x] = (has && leaseEpoch > pe[x] -> leaseEpoch : 0);
		uncounted[x] = !found[x] && wait[x] > 0 && has && !IN(x, leaseList);
		known[x] = 1;
		if :: has -> KNOWS(x, leaseEpoch, leaseVersion) skip :: else fi
	}
}

active proctype world() {
	/* A settled Database: member 0 leads epoch 1, the others have just granted and stream. */
	d_step {
		leaseEpoch = 1; leaseLeader = 0; leaseList = VOTERS;
		for (e : 0 .. EMAX) { ledBy[e] = NONE }
		ledBy[1] = 0;
		for (p : 0 .. N - 1) {
			bound[p] = NONE; pc[p] = NONE; known[p] = 1; data[p] = 1; rank[p] = 1; found[p] = 1;
#ifdef WITNESS
			if :: IS_WITNESS(p) -> data[p] = 0; rank[p] = 0 :: else fi;
#endif
			pe[p] = 1; pc[p] = 0; bound[p] = 0; until[p] = G; grant[AT(0, p)] = G;
			attached[p] = p != 0 && !IS_WITNESS(p);
#ifdef RESTORES
			knownEpoch[p] = 1; knownEpochDisk[p] = 1; knownVersion[p] = 1; knownVersionDisk[p] = 1;
#endif
		}
		stage[0] = LEADING; epoch[0] = 1; list[0] = VOTERS; primary[0] = 1; fresh[0] = 1;
#ifdef CHANGES
		sync[0] = VOTERS;
#endif
#ifdef RESTORES
		leaseVersion = 1; version[0] = 1; told[0] = VOTERS;
#endif
		p = 0; e = 0
	}

	do
	/* Time passes. Clocks drift: see README.md for why one tick for all is the worst that they may do. */
	:: d_step {
		for (p : 0 .. N - 1) {
			if :: until[p] > 0 -> until[p]--; if :: until[p] == 0 -> bound[p] = NONE :: else fi :: else fi;
			if :: wait[p] > 0 -> wait[p]-- :: else fi;
			for (q : 0 .. N - 1) {
				if :: grant[AT(p, q)] > 0 -> grant[AT(p, q)]-- :: else fi;
#ifdef ASYNC
				if :: askedLeft[AT(p, q)] > 0 -> askedLeft[AT(p, q)]-- :: else fi;
#endif
			}
#ifndef NOFENCE
			/* expire(), the watchdog and the kernel's fence: nothing is answered after the deadline. */
			if :: primary[p] && !LASTS(p, 1) && !ALONE(p) -> primary[p] = 0 :: else fi;
#endif
		}
		p = 0; q = 0;
		printf("a tick\n")
	}

#ifndef ASYNC
	/* leader.go round() and grantAnswered(): ask j, and count its grant, or lose the answer. */
	:: atomic { PAIR(CAN_ASK);
		printf("%d grants to %d, epoch %d\n", j, i, epoch[i]);
		onGrant(i, j, epoch[i]);
		grant[AT(i, j)] = G;
		HAS_TOLD(i, j)
	}
#else
	:: atomic { PAIR(CAN_SEND); /* leader.go round() */
		printf("%d asks %d for a grant, epoch %d\n", i, j, epoch[i]);
		asked[AT(i, j)] = 1; askedLeft[AT(i, j)] = G; askedEpoch[AT(i, j)] = epoch[i]
	}
	:: atomic { PAIR(CAN_ARRIVE); /* it is answered, or the answer is lost */
		printf("%d grants to %d, epoch %d\n", j, i, askedEpoch[AT(i, j)]);
		onGrant(i, j, askedEpoch[AT(i, j)]);
		if
		:: ASKS(i) && epoch[i] == askedEpoch[AT(i, j)] -> asked[AT(i, j)] = 2
		:: asked[AT(i, j)] = 0; askedLeft[AT(i, j)] = 0; askedEpoch[AT(i, j)] = 0
		fi
	}
	:: atomic { PAIR(CAN_ANSWER); /* leader.go grantAnswered(): what counts is when the request was sent */
		printf("%d hears of the grant of %d\n", i, j);
		if
		:: ASKS(i) && epoch[i] == askedEpoch[AT(i, j)] ->
#ifdef BUG_NO_FENCE_TIME
			grant[AT(i, j)] = G
#else
			if :: grant[AT(i, j)] < askedLeft[AT(i, j)] -> grant[AT(i, j)] = askedLeft[AT(i, j)] :: else fi
#endif
		:: else
		fi;
		asked[AT(i, j)] = 0; askedLeft[AT(i, j)] = 0; askedEpoch[AT(i, j)] = 0
	}
#endif
	/* leader.go grantSelf() */
	:: atomic { SOME(CAN_GRANT_SELF);
		printf("%d grants to itself, epoch %d\n", i, epoch[i]);
		bound[i] = i; until[i] = G; grant[AT(i, i)] = G;
		HAS_TOLD(i, i)
	}

	/* candidate.go stand(), startAsking(), startStanding(). The pre-vote is left out: it only ever prevents. */
	:: atomic { SOME(CAN_STAND);
		reads(i);
		e = OWN_EPOCH(i); m = e;
		d_step { for (k : 0 .. N - 1) { if :: pe[k] > m -> m = pe[k] :: else fi } k = 0 }
		if
		:: true
		:: m > e && m < EMAX -> e = m /* the pre-vote told of a higher promise */
		fi;
		e++;
		promises(i, e, i);
		stage[i] = STANDING; epoch[i] = e; list[i] = leaseList; fresh[i] = 1; support[i] = BIT(i);
		led[i] = leaseLeader == i;
		BASE_DEGRADED(i)
		printf("%d stands for epoch %d\n", i, e);
		BASE_VERSION(i)
	}
	/* voter.go onSupport(), wouldSupport(), answerFinal(); candidate.go progressStanding() */
	:: atomic { PAIR(CAN_SUPPORT);
		printf("%d supports %d, epoch %d\n", j, i, epoch[i]);
		if
		:: stage[j] == STANDING || stage[j] == CLAIMING -> leaves(j); becomesIdle(j)
		:: else
		fi;
		promises(j, epoch[i], i); /* and ends receiving */
		if
		:: (data[j] -> COVERS(i, j) : IS_WITNESS(j) || BLIND(i)) -> support[i] = support[i] | BIT(j)
		:: true /* the answer is lost, or the candidate has less */
		fi
	}
	/* candidate.go progressSwapping(), store.go leaseSwapped(), claim() */
	:: atomic { SOME(CAN_SWAP);
		printf("%d swaps the Lease to epoch %d\n", i, epoch[i]);
		MUST(epoch[i] > leaseEpoch, "VIOLATED S2: the Lease goes back to an older epoch\n");
		gives(epoch[i], i);
		leaseChanges(epoch[i], i, list[i]);
		SAME_RECORD(i)
		ACCEPTS(i)
		SWAPPED(i)
		fresh[i] = 1; stage[i] = CLAIMING; support[i] = 0; led[i] = 0;
		KNOWS(i, epoch[i], leaseVersion)
	}
	/* The swap of one that has moved on, or is gone, lands after all. */
	:: d_step { late;
		printf("a late swap lands: %d at epoch %d\n", lateLeader, lateEpoch);
		gives(lateEpoch, lateLeader);
		LATE_DEGRADED
		LATE_ACCEPTS
		LATE_SWAPPED
		leaseChanges(lateEpoch, lateLeader, lateList);
		k = 0
	}
	/* leader.go progressClaiming(): a fresh majority entitles; the server is promoted. */
	:: atomic { SOME(CAN_PROMOTE);
		printf("%d is promoted at epoch %d with the writes %d of %d\n", i, epoch[i], log[i], acked);
		d_step {
		for (k : 0 .. N - 1) {
			MUST(k == i || !SERVES(k), "VIOLATED S1: two could acknowledge at one time\n");
			MUST(k == i || stage[k] != LEADING || !LASTS(k, 1), "VIOLATED S3: promoted before the deadline of the old leader\n")
		}
		leadsAt(epoch[i], i);
		MUST((acked & ~log[i]) == 0, "VIOLATED S1: an acknowledged write is lost\n");
		stage[i] = LEADING; primary[i] = 1; rank[i] = epoch[i]; attached[i] = 0;
#ifdef BUG_SWAP_ENTITLES
		for (k : 0 .. N - 1) { grant[AT(i, k)] = G }
#endif
		SYNC_IN_FORCE(i)
		k = 0
		}
	}
	/* candidate.go giveUp() */
	:: atomic { SOME(CAN_GIVE_UP); printf("%d gives up\n", i); leaves(i); ends(i, list[i]) }
	/* leader.go stop(), endLeadership(): the server died, it hands over, it was superseded, or its deadline came. */
	:: atomic { SOME(CAN_STOP); printf("%d stops and releases\n", i); leaves(i); ends(i, list[i] | NEXT(i)) }
	/* voter.go onRelease(), however late */
	:: atomic { PAIR(CAN_HEAR);
		printf("%d hears that %d released epoch %d\n", j, i, outEpoch[i]);
		out[i] = out[i] & ~BIT(j);
		if
		:: outEpoch[i] < pe[j] || (outEpoch[i] == pe[j] && pc[j] != i)
		:: else ->
			if :: bound[j] == i -> bound[j] = NONE; until[j] = 0 :: else fi;
			if :: outEpoch[i] == pe[j] -> voided[j] = 1; attached[j] = 0 :: else fi
		fi;
		if :: out[i] == 0 -> outEpoch[i] = 0 :: else fi
	}
	/* idle.go resume(), after a restart */
	:: atomic { SOME(CAN_CLAIM_AGAIN);
		printf("%d reads that it leads\n", i);
		reads(i);
		epoch[i] = leaseEpoch; list[i] = leaseList; fresh[i] = 1;
		BASE_DEGRADED(i)
		BASE_VERSION(i)
		OF_AN_EARLIER_RUN(i)
		if
		:: data[i] && (CAN_RESUME || leaseList == BIT(i)) -> stage[i] = CLAIMING
		:: leaseList != BIT(i) -> ends(i, list[i])
		fi
	}
	/* idle.go wantsLook(): a member that has started reads the Lease. */
	:: atomic { SOME(CAN_LOOK); printf("%d reads the Lease\n", i); reads(i) }

	/* A client writes. */
	:: atomic { SOME(CAN_WRITE);
		printf("%d writes %d\n", i, writes);
		log[i] = log[i] | BIT(writes); writes++;
		settles(i)
	}
	/* A replica receives from whom it is promised to (decide.go upstream()): all that there is, rewound or cloned as needed. */
	:: atomic { PAIR(CAN_RECEIVE);
		printf("%d receives from %d\n", j, i);
		log[j] = log[i]; rank[j] = rank[i]; data[j] = 1;
		settles(i)
	}

#ifdef WITNESS
	/* fewer.go progressStep(): the swap lands, which the leader need not know yet */
	:: atomic { SOME(CAN_DEGRADE);
		printf("the Lease says that %d alone holds everything\n", i);
		leaseChanges(epoch[i], i, list[i]);
		leaseDegraded = 1; fresh[i] = 1
	}
	:: atomic { SOME(CAN_KNOW_STEP);
		printf("%d knows what the Lease says: %d\n", i, leaseDegraded);
		degraded[i] = leaseDegraded; strict[i] = 0; marked[i] = 0; mark[i] = 0; sent[i] = 0;
		settles(i)
	}
	/* progressRestore() */
	:: atomic { SOME(CAN_BE_STRICT); printf("%d lets every commit wait again\n", i); strict[i] = 1 }
	:: atomic { SOME(CAN_MARK); printf("%d takes a mark at %d\n", i, log[i]); marked[i] = 1; mark[i] = log[i] }
	:: atomic { SOME(CAN_RESTORE);
		printf("the Lease says that others than %d hold everything, too\n", i);
		leaseChanges(epoch[i], i, list[i]);
		leaseDegraded = 0; fresh[i] = 1; sent[i] = 1
	}
	:: atomic { SOME(CAN_RELAX); printf("%d goes on alone\n", i); strict[i] = 0; marked[i] = 0; mark[i] = 0; settles(i) }
#endif
#ifdef RECOVERS
	/* idle.go recoverNow(): a person has accepted the loss on the Lease as it is; the member reads it. */
	:: atomic { SOME(CAN_ORDER);
		printf("%d is ordered to recover\n", i);
		recovers--;
		reads(i);
		ordered[i] = 1; heard[i] = BIT(i); fresh[i] = 1;
		BASE_VERSION(i)
	}
	/* recover.go startRecovery(), contradicted() */
	:: atomic { PAIR(CAN_TELL);
		printf("%d is free, or does not run, says %d\n", j, i);
		heard[i] = heard[i] | BIT(j)
	}
	/* recover.go progressRecovery(), recoveryRecord(): it stands by itself, with itself as the only voter. */
	:: atomic { SOME(CAN_RECOVER);
		e = OWN_EPOCH(i); m = e;
		d_step { for (k : 0 .. N - 1) { if :: pe[k] > m -> m = pe[k] :: else fi } k = 0 }
		if
		:: true
		:: m > e && m < EMAX -> e = m
		fi;
		e++;
		promises(i, e, i);
		stage[i] = STANDING; epoch[i] = e; list[i] = BIT(i); support[i] = BIT(i);
		printf("%d recovers with epoch %d\n", i, e)
	}
#endif

#ifdef CHANGES
	/* change.go progressMembers(): one member comes or goes. */
	:: atomic { PAIR(CAN_CHANGE);
		printf("%d begins to change its voters from %d to %d\n", i, list[i], list[i] ^ BIT(j));
		changes--;
		next[i] = list[i] ^ BIT(j)
	}
	/* pushChange(): the swap lands, which the leader need not know yet */
	:: atomic { SOME(CAN_LAND);
		printf("%d swaps the voters in: %d\n", i, next[i]);
		leaseChanges(epoch[i], i, next[i]);
		LIST_VERSION(i)
		fresh[i] = 1
	}
	/* changeLanded() */
	:: atomic { SOME(CAN_KNOW);
		printf("%d knows that its voters are %d\n", i, next[i]);
		list[i] = next[i]; next[i] = 0; fresh[i] = 1;
		VERSION_KNOWN(i)
	}
	/* pushChange(): what the change rested on is gone; the old list is written in its place. */
	:: atomic { SOME(CAN_WITHDRAW);
		printf("%d withdraws the change\n", i);
		leaseChanges(epoch[i], i, list[i]);
		LIST_VERSION(i)
		VERSION_KNOWN(i)
		next[i] = 0; fresh[i] = 1
	}
	/* The server obeys the new synchronous list (Facts.Obeys reaches syncAt). */
	:: atomic { SOME(CAN_APPLY);
		printf("%d puts the synchronous list %d in force\n", i, list[i]);
		sync[i] = list[i];
		settles(i)
	}
#ifdef WIPES
	/* decide.go mayWipe(): a member that is no voter discards its data, to be cloned again. */
	:: atomic { SOME(CAN_WIPE);
		printf("%d wipes\n", i);
		wipes--;
		data[i] = 0; log[i] = 0; rank[i] = 0
	}
#endif
#endif
#ifdef RESTORES
	:: d_step { !backup; backup = 1; backupEpoch = leaseEpoch; backupLeader = leaseLeader; backupList = leaseList; backupVersion = leaseVersion;
		printf("a backup is made\n")
	}
	:: d_step { backup && restores > 0;
		printf("the Lease is restored\n");
		restores--;
		has = 1;
		leaseChanges(backupEpoch, backupLeader, backupList);
		leaseVersion = backupVersion
	}
	:: d_step { restores > 0;
		printf("the Lease is deleted\n");
		restores--;
		has = 0;
		leaseChanges(0, 0, 0);
		leaseVersion = 0
	}
	/* change.go leaderReadLease(), progressChange(), raise(): a leader with grants takes a new epoch without a break. */
	:: atomic { SOME(CAN_RAISE);
		raising[i] = RAISED(i); fresh[i] = 1;
		printf("%d raises to epoch %d\n", i, raising[i])
	}
	:: atomic { SOME(CAN_LAND_RAISE);
		printf("%d has raised to epoch %d\n", i, raising[i]);
		version[i] = (version[i] > leaseVersion -> version[i] : leaseVersion) + 1;
		has = 1;
		leaseChanges(raising[i], i, list[i]);
		leaseVersion = version[i];
		epoch[i] = raising[i]; raising[i] = 0; fresh[i] = 1; told[i] = 0;
		FORGET_NEXT(i)
		KNOWS(i, epoch[i], leaseVersion)
		promises(i, epoch[i], i)
	}
#endif

#ifdef CALM
	/* L1. Faults end: whoever leads or stands stops, what is under way is lost, promises run out. Then the best voter must find every
	 * way open, by the same conditions as above. With a lost volume this is due only where a majority can still vouch for the log. */
	:: d_step { CAN_CALM;
		for (p : 0 .. N - 1) {
			if :: stage[p] != IDLE -> ends(p, 0) :: else fi
		}
		late = 0; lateEpoch = 0; lateLeader = 0; lateList = 0;
		for (p : 0 .. N - 1) {
			out[p] = 0; outEpoch[p] = 0; until[p] = 0; bound[p] = NONE; wait[p] = 0; attached[p] = 0;
			reads(p)
		}
		q = NONE;
		for (p : 0 .. N - 1) {
			if :: MINE(p) -> epoch[p] = leaseEpoch; ends(p, 0) :: else fi;
			if
			:: data[p] && IN(p, leaseList) && ELECTABLE(p) && (q == NONE || !COVERS(q, p)) -> q = p
			:: else
			fi
		}
		MUST(q != NONE && CAN_STAND(q), "VIOLATED L1: nobody can stand\n");
		e = 0;
		for (p : 0 .. N - 1) { if :: pe[p] > e -> e = pe[p] :: else fi }
		e++;
		promises(q, e, q);
		stage[q] = STANDING; epoch[q] = e; list[q] = leaseList; fresh[q] = 1; support[q] = BIT(q); led[q] = leaseLeader == q;
		for (p : 0 .. N - 1) {
			if
			:: p != q && IN(p, list[q]) && (data[p] || led[q] || IS_WITNESS(p)) ->
				MUST(CAN_SUPPORT(q, p) && (!data[p] || COVERS(q, p)), "VIOLATED L1: a voter can never support the best candidate\n");
				promises(p, e, q);
				support[q] = support[q] | BIT(p)
			:: else
			fi
		}
		MUST(CAN_SWAP(q) && e > leaseEpoch, "VIOLATED L1: the best candidate can never swap\n");
		BASE_DEGRADED(q)
		leaseChanges(e, q, list[q]);
		SAME_RECORD(q)
		stage[q] = CLAIMING;
		for (p : 0 .. N - 1) {
			if
			:: p == q -> MUST(CAN_GRANT_SELF(q), "VIOLATED L1: the winner cannot grant to itself\n"); grant[AT(q, q)] = G
			:: p != q && IN(p, list[q]) -> MUST(CAN_ASK(q, p), "VIOLATED L1: a voter can never grant to the winner\n"); grant[AT(q, p)] = G
			:: else
			fi
		}
		MUST(CAN_PROMOTE(q) && (acked & ~log[q]) == 0, "VIOLATED L1: the winner cannot be promoted\n");
		/* The same end for all. */
		for (p : 0 .. N - 1) {
			pe[p] = 0; pc[p] = 0; released[p] = 0; found[p] = 0; data[p] = 0; rank[p] = 0; log[p] = 0; bound[p] = 0; until[p] = 0; wait[p] = 0;
			known[p] = 0; uncounted[p] = 0; seen[p] = 0; voided[p] = 0; attached[p] = 0; stage[p] = 0; epoch[p] = 0; fresh[p] = 0; list[p] = 0;
			support[p] = 0; led[p] = 0; ended[p] = 0; primary[p] = 0; out[p] = 0; outEpoch[p] = 0;
			for (q : 0 .. N - 1) { grant[AT(p, q)] = 0 }
			FORGET_CHANGE(p)
			FORGET_STEP(p)
		}
		NOT_DEGRADED
		for (p : 0 .. EMAX) { ledBy[p] = 0 }
		leaseEpoch = 0; leaseLeader = 0; leaseList = 0; crashes = 0; forgets = 0; losses = 0; writes = 0; acked = 0;
		NO_CHANGES
		has = 0; p = 0; q = 0
	}
#endif

#ifdef EXCHANGES
	/* kept.go: the program is exchanged, of a member that has nothing under way. All that it knows is kept; answers under way are lost. */
	:: atomic { SOME(CAN_EXCHANGE);
		printf("%d exchanges its program\n", i);
		d_step {
			exchanges--;
			for (k : 0 .. N - 1) { FORGET_ASKED(i, k) skip }
#ifdef BUG_FORGETS_BOUND
			bound[i] = NONE; until[i] = 0;
#endif
#ifdef BUG_FORGETS_DEADLINE
			for (k : 0 .. N - 1) { if :: grant[AT(i, k)] > 0 -> grant[AT(i, k)] = G :: else fi }
#endif
			k = 0
		}
	}
#endif

	/* An agent restarts, its server with it; it may have lost its promise, or its volume. */
	:: atomic { SOME(CAN_CRASH);
		printf("%d restarts\n", i);
		crashes--;
		restarts(i);
		if
		:: true
		:: forgets > 0 && MAY_FORGET(i) -> forgets--; losesPromise(i); printf("  and lost its promise\n")
		:: losses > 0 && MAY_FORGET(i) -> losses--; losesPromise(i); data[i] = 0; log[i] = 0; rank[i] = 0; printf("  and lost its volume\n")
		fi
	}
	od
}
