package lease

import "testing"

// TestOneMemberIsRebuiltAtATime: who can wait, waits for whoever is on its way to be a voter; who cannot, does not.
func TestOneMemberIsRebuiltAtATime(t *testing.T) {
	leave, patient := Answer{Leave: true}, Answer{Leave: true, CanWait: true}
	for sentence, row := range map[string]struct {
		voters []string
		peers  map[string]Answer
		want   string
	}{
		"nobody asks":                               {[]string{"a", "b", "c"}, nil, ""},
		"one that can wait need not":                {[]string{"a", "b", "c"}, map[string]Answer{"c": patient}, "c"},
		"one that can wait does, for another":       {[]string{"a", "b"}, map[string]Answer{"b": patient, "c": {}}, ""},
		"but not for one that never comes":          {[]string{"a", "b"}, map[string]Answer{"b": patient}, "b"},
		"one that cannot wait does not":             {[]string{"a", "b"}, map[string]Answer{"b": leave, "c": {}}, "b"},
		"of two the one that cannot wait goes":      {[]string{"a", "b", "c"}, map[string]Answer{"b": patient, "c": leave}, "b"},
		"of two one goes, and the next has to wait": {[]string{"a", "c"}, map[string]Answer{"c": patient, "b": patient}, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			m, err := NewMachine(Default("a", "uid", 1), start, Promise{}, false)
			if err != nil {
				t.Fatal(err)
			}
			m.aim.Members = []string{"a", "b", "c"}
			m.lead = m.newLeader(Record{Leader: "a", Voters: row.voters})
			for name, answer := range row.peers {
				m.lead.peers[name] = peer{answer, start}
			}
			if got := m.nextMember(); got != (mark{target: row.want}) {
				t.Errorf("%+v is next, want %q to go", got, row.want)
			}
		})
	}
}

// TestANewLeaderDoesNotKnowYetWhoComes : it has not asked for long enough.
func TestANewLeaderDoesNotKnowYetWhoComes(t *testing.T) {
	m, err := NewMachine(Default("a", "uid", 1), start, Promise{}, false)
	if err != nil {
		t.Fatal(err)
	}
	m.aim.Members = []string{"a", "b", "c"}
	m.lead = m.newLeader(Record{Leader: "a", Voters: []string{"a", "b"}})
	m.line.Elected = start
	if got := m.rebuilding(); got != "c" {
		t.Errorf("%q is being rebuilt", got)
	}
	m.now = start.Add(2 * rebuildSilence)
	if got := m.rebuilding(); got != "" {
		t.Errorf("%q is being rebuilt, and was never heard", got)
	}
	m.lead.peers["c"] = peer{at: m.now}
	if got := m.rebuilding(); got != "c" {
		t.Errorf("%q is being rebuilt", got)
	}
}

// TestTheLeadersLogRidesOnItsRequests, so that who follows knows what it lacks.
func TestTheLeadersLogRidesOnItsRequests(t *testing.T) {
	b := newBench(t, Promise{Epoch: 5, Candidate: "b"}, true)
	grant := func(seq, at uint64) {
		b.step(Received{Token: seq, Request: Request{
			Kind: KindGrant, Database: "uid", From: "b", Seq: seq, Epoch: 5, Leading: true, At: Position{Known: true, Rank: 1, At: at},
		}})
	}
	grant(1, 4711)
	if got := b.m.status().Leader; got.Name != "b" || got.Epoch != 5 || got.End.At != 4711 {
		t.Errorf("the leader is %+v", got)
	}
	grant(2, 4712)
	if got := b.m.status().Leader.End.At; got != 4712 {
		t.Errorf("its log ends at %d", got)
	}
	b.step(Received{Token: 9, Request: Request{Kind: KindRelease, Database: "uid", From: "b", Seq: 9, Epoch: 5}})
	if got := b.m.status().Leader; got.End.Known {
		t.Errorf("a leader that has ended is at %+v", got)
	}
}
