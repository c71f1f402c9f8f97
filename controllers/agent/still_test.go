package agent

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/agent/lease"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// phaseOf a replica's life: how long it lasts, and what a look shows all the while.
type phaseOf struct {
	lasts time.Duration
	// leader and applied are positions in the log at its begin, and how much they grow each second.
	leader, leaderGrows, applied, grows uint64
	// works is how much effort a second shows.
	works   uint64
	hold    *engine.Hold
	pid     int
	streams bool
	turn    int
	silent  bool // the leader says nothing
	leads   bool
	fell    int64
}

func (p phaseOf) footing(now lease.Time, i int) footing {
	f := footing{
		Replica: !p.leads, PID: p.pid, Streams: p.streams, Hold: p.hold, Fell: p.fell, Turn: p.turn, Effort: uint64(i) * p.works,
		Applied: engine.Position{Timeline: 1, Bytes: p.applied + uint64(i)*p.grows, Text: "0/1"},
		Leader:  lease.LeaderAt{Name: "orders-2", Epoch: 7, Heard: now, End: lease.Position{Known: true, Rank: 1, At: p.leader + uint64(i)*p.leaderGrows, Text: "0/2"}},
	}
	if p.silent {
		f.Leader.Heard = now.Add(-time.Minute)
	}
	return f
}

// usual bounds are those of an agent that nobody has configured.
func usual() bounds { return Config{}.withDefaults().bounds() }

func TestTheUsualPatienceWithAStandstill(t *testing.T) {
	if diff := cmp.Diff(bounds{still: time.Minute, turn: 20 * time.Second}, usual(), cmp.AllowUnexported(bounds{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	given := Config{Still: time.Second, Turn: 2 * time.Second}
	if diff := cmp.Diff(bounds{still: time.Second, turn: 2 * time.Second}, given.withDefaults().bounds(), cmp.AllowUnexported(bounds{})); diff != "" {
		t.Errorf("given (-want +got):\n%s", diff)
	}
}

// TestAnAgentsPatienceIsItsConfigs: what the configuration says is what its replica is judged by, also after a time as primary.
func TestAnAgentsPatienceIsItsConfigs(t *testing.T) {
	p := progress{bounds: bounds{still: 20 * time.Second, turn: time.Second}}
	stands := phaseOf{leader: 1 << 30, leaderGrows: 1 << 20, applied: 1000, pid: 11}
	now := lease.Time(1e12)
	look := func(life phaseOf, seconds int) (got stand) {
		for i := range seconds {
			now = now.Add(time.Second)
			got = p.look(now, life.footing(now, i))
		}
		return got
	}
	for range 2 {
		if got := look(stands, 18); got.Do != leaveIt {
			t.Errorf("too early: %+v", got)
		}
		if got := look(stands, 4); got.Do != startAgain {
			t.Errorf("too late: %+v", got)
		}
		leads := stands
		leads.leads = true
		look(leads, 1)
	}
}

func TestAReplicaIsJudgedByItsBytes(t *testing.T) {
	const far = 1 << 30
	stillPatience, turnPatience := usual().still, usual().turn
	query := &engine.Hold{Why: "a query", Most: 30_000}
	forever := &engine.Hold{Why: "a query for ever", Most: -1}
	stands := phaseOf{leader: far, leaderGrows: 1 << 20, applied: 1000, pid: 11}
	phase := func(lasts time.Duration, change func(*phaseOf)) phaseOf {
		p := stands
		p.lasts = lasts
		if change != nil {
			change(&p)
		}
		return p
	}
	type want struct {
		Failing, Held bool
		Do            remedy
	}
	ends := func(pid int, fell int64) func(*phaseOf) { // each applies the same again first
		return func(p *phaseOf) { p.pid, p.fell, p.grows = pid, fell, 100 }
	}
	again := func(pid int) func(*phaseOf) { return func(p *phaseOf) { p.pid = pid } }
	for sentence, row := range map[string]struct {
		life []phaseOf
		want want
	}{
		"one that has just stopped is not blamed":                  {[]phaseOf{phase(behindFor-time.Second, nil)}, want{}},
		"one that stands still is not healthy":                     {[]phaseOf{phase(behindFor+2*time.Second, nil)}, want{Failing: true}},
		"one that stands still for long is started again":          {[]phaseOf{phase(stillPatience+2*time.Second, nil)}, want{Failing: true, Do: startAgain}},
		"the second by name is later":                              {[]phaseOf{phase(stillPatience+2*time.Second, func(p *phaseOf) { p.turn = 1 })}, want{Failing: true}},
		"and has its turn":                                         {[]phaseOf{phase(stillPatience+turnPatience+2*time.Second, func(p *phaseOf) { p.turn = 1 })}, want{Failing: true, Do: startAgain}},
		"one that receives and applies nothing is no better":       {[]phaseOf{phase(stillPatience+2*time.Second, func(p *phaseOf) { p.streams = true })}, want{Failing: true, Do: startAgain}},
		"one that lags and moves is well":                          {[]phaseOf{phase(time.Hour, func(p *phaseOf) { p.grows = 8 })}, want{}},
		"one that has all is well, for however long nothing comes": {[]phaseOf{phase(time.Hour, func(p *phaseOf) { p.leaderGrows, p.applied = 0, far })}, want{}},
		"a leader that says nothing proves nothing":                {[]phaseOf{phase(time.Hour, func(p *phaseOf) { p.silent = true })}, want{}},
		"a primary is no replica":                                  {[]phaseOf{phase(time.Minute, nil), phase(time.Minute, func(p *phaseOf) { p.leads = true })}, want{}},
		"without a server nothing is counted":                      {[]phaseOf{phase(time.Hour, again(0))}, want{}},
		"the end of a record is waited for":                        {[]phaseOf{phase(stillPatience+2*time.Second, func(p *phaseOf) { p.leader, p.leaderGrows = 1000+little, 0 })}, want{}},
		"but not for ever":                                         {[]phaseOf{phase(littlePatience+2*time.Second, func(p *phaseOf) { p.leader, p.leaderGrows = 1001, 0 })}, want{Failing: true, Do: startAgain}},
		"an older timeline, of which nothing comes, is no end":     {[]phaseOf{phase(stillPatience+2*time.Second, func(p *phaseOf) { p.applied, p.leader, p.leaderGrows = far, far, 0 })}, want{}},

		"a query holds it for as long as it may":      {[]phaseOf{phase(60*time.Second, func(p *phaseOf) { p.hold = query })}, want{Held: true}},
		"a short query is not worth a word":           {[]phaseOf{phase(10*time.Second, func(p *phaseOf) { p.hold = query })}, want{}},
		"a query that does not end when it must":      {[]phaseOf{phase(30*time.Second+2*stillPatience+3*time.Second, func(p *phaseOf) { p.hold = query })}, want{Failing: true, Do: startAgain}},
		"a query that may take for ever":              {[]phaseOf{phase(24*time.Hour, func(p *phaseOf) { p.hold = forever })}, want{Held: true}},
		"one that works hard is slow, not dead":       {[]phaseOf{phase(5*time.Minute, func(p *phaseOf) { p.works = 2e8 })}, want{}},
		"one that works hard for nothing is not":      {[]phaseOf{phase(effortMost+stillPatience+2*time.Second, func(p *phaseOf) { p.works = 1e9 })}, want{Failing: true, Do: startAgain}},
		"one that only looks again does not work":     {[]phaseOf{phase(stillPatience+2*time.Second, func(p *phaseOf) { p.works = 5e6 })}, want{Failing: true, Do: startAgain}},
		"a restart that helps is followed to the end": {[]phaseOf{phase(stillPatience+2*time.Second, nil), phase(20*time.Second, func(p *phaseOf) { p.pid, p.grows = 12, 1<<10 })}, want{Failing: true}},
		"and then it is well": {
			[]phaseOf{phase(stillPatience+2*time.Second, nil), phase(20*time.Second, func(p *phaseOf) { p.pid, p.applied, p.leaderGrows = 12, 2*far, 0 })}, want{},
		},
		"it need not reach more than what was there then": {
			[]phaseOf{phase(stillPatience+2*time.Second, nil), phase(20*time.Second, func(p *phaseOf) { p.pid, p.applied, p.grows, p.leader = 12, far+100<<20, 1, 4*far })}, want{},
		},
		"what is applied again is no progress":               {[]phaseOf{phase(stillPatience+2*time.Second, nil), phase(20*time.Second, func(p *phaseOf) { p.pid, p.applied = 12, 1000 })}, want{Failing: true}},
		"a restart that does not help is followed by a copy": {[]phaseOf{phase(stillPatience+2*time.Second, nil), phase(stillPatience+2*time.Second, again(12))}, want{Failing: true, Do: copyAnew}},
		"one whose servers end in the middle of it again and again": {
			[]phaseOf{
				phase(2*time.Second, func(p *phaseOf) { p.applied = 5000 }), phase(2*time.Second, ends(12, 1)), phase(2*time.Second, ends(13, 2)), phase(2*time.Second, ends(14, 3)), phase(2*time.Second, ends(15, 4)), phase(2*time.Second, ends(16, 5)),
			},
			want{Failing: true, Do: startAgain},
		},
		"one whose servers end for another reason": {
			[]phaseOf{phase(2*time.Second, nil), phase(2*time.Second, ends(12, 0)), phase(2*time.Second, ends(13, 0)), phase(2*time.Second, ends(14, 0)), phase(2*time.Second, ends(15, 0)), phase(2*time.Second, ends(16, 0))}, want{},
		},
		"a copy under way is waited for": {
			[]phaseOf{phase(stillPatience+2*time.Second, nil), phase(stillPatience+2*time.Second, again(12)), phase(5*time.Hour, again(0))}, want{Failing: true, Do: copyAnew},
		},
		"a copy that does not help is not repeated at once": {
			[]phaseOf{phase(stillPatience+2*time.Second, nil), phase(stillPatience+2*time.Second, again(12)), phase(2*stillPatience-2*time.Second, again(13))}, want{Failing: true},
		},
		"but later": {
			[]phaseOf{phase(stillPatience+2*time.Second, nil), phase(stillPatience+2*time.Second, again(12)), phase(2*stillPatience+2*time.Second, again(13))}, want{Failing: true, Do: copyAnew},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			p := progress{bounds: usual()}
			now := lease.Time(1e12)
			var got stand
			for _, life := range row.life {
				for i := range int(life.lasts / time.Second) {
					now = now.Add(time.Second)
					got = p.look(now, life.footing(now, i))
				}
			}
			if diff := cmp.Diff(row.want, want{got.Failing, got.Held, got.Do}); diff != "" {
				t.Errorf("(-want +got):\n%s\n%s", diff, got.Words)
			}
			if (got.Words == "") != (!got.Failing && !got.Held) {
				t.Errorf("it says %q", got.Words)
			}
		})
	}
}

// TestServersThatEndUnseen: each lives for less than a look takes.
func TestServersThatEndUnseen(t *testing.T) {
	p := progress{bounds: usual()}
	now := lease.Time(1e12)
	life := phaseOf{leader: 1 << 30, leaderGrows: 1 << 20, applied: 5000, pid: 11}
	p.look(now, life.footing(now, 0))
	var done []remedy
	for n := range 14 {
		now = now.Add(30 * time.Second)
		f := life.footing(now, 0)
		f.PID, f.Newest, f.Fell = 0, 12+n, int64(n+1)
		got := p.look(now, f)
		if got.PID != f.Newest {
			t.Fatalf("it is said of server %d, and %d is the newest", got.PID, f.Newest)
		}
		if got.Do != leaveIt && (len(done) == 0 || done[len(done)-1] != got.Do) {
			done = append(done, got.Do)
		}
	}
	if diff := cmp.Diff([]remedy{startAgain, copyAnew}, done); diff != "" {
		t.Errorf("what was done (-want +got):\n%s", diff)
	}
}

func TestAnAgentWithoutProcessorKnowsNothingOfThatTime(t *testing.T) {
	p := progress{bounds: usual()}
	stands := phaseOf{leader: 1 << 30, applied: 1000, pid: 11}
	now := lease.Time(1e12)
	for i := range 4 {
		now = now.Add(time.Hour)
		if got := p.look(now, stands.footing(now, i)); got.Failing {
			t.Fatalf("after %d looks: %+v", i, got)
		}
	}
}

func TestWhoIsNotCopiedAnew(t *testing.T) {
	three, two := []string{"orders-1", "orders-2", "orders-3"}, []string{"orders-1", "orders-2"}
	for sentence, row := range map[string]struct {
		voters   []string
		members  int
		mode     string
		streams  bool
		want     bool
		rebuilds string
	}{
		"the only other copy beside a witness, which writes wait for": {[]string{"orders-1", "orders-2", "orders-w1"}, 2, "required", true, false, ""},
		"one while another is being copied":                           {three, 3, "required", false, false, "orders-3"},
		"one that is being copied itself":                             {three, 3, "required", false, true, "orders-1"},
		"one although a wanted instance never comes":                  {two, 3, "required", false, true, ""},
		"one of three":                                       {three, 3, "required", true, true, ""},
		"one that is no voter any more":                      {two[1:], 2, "required", false, true, ""},
		"one whose Lease is not known":                       {nil, 3, "required", false, false, ""},
		"the only other copy, which writes wait for":         {two, 2, "required", true, false, ""},
		"the only other copy, which receives nothing anyway": {two, 2, "required", false, true, ""},
		"the only other copy, which no write waits for":      {two, 2, "preferred", true, true, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := follows()
			s.Decision.Record = lease.Record{Voters: row.voters}
			if row.voters != nil {
				s.Decision.Record.Version = 9
			}
			if slices.Contains(row.voters, "orders-w1") {
				s.Decision.Record.Witness = "orders-w1"
			}
			s.Aim.Members, s.Aim.Synchronous, s.Streams, s.Rebuilds = s.Aim.Members[:row.members], row.mode, row.streams, row.rebuilds
			if why := withheld(s); (why == "") != row.want {
				t.Errorf("withheld: %q", why)
			}
		})
	}
}
