package lease

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Words say it to people.
func (w Wait) Words() string {
	switch w.For {
	case WaitNothing:
		return ""
	case WaitAPIServer:
		return fmt.Sprintf("the API server %s, and nobody is elected without it", cmp.Or(w.Why, "does not answer"))
	case WaitOlder:
		return "the Lease is missing, or older than what this instance saw there; only a leader with grants may write it again"
	case WaitLease:
		return because("the Lease cannot be used", w.Why)
	case WaitOnly:
		return fmt.Sprintf("writes were acknowledged that only %s is known to hold: nobody else may lead until it is back", w.Who)
	case WaitSilent:
		return because(fmt.Sprintf("there is no majority: %s not answer", does(w.Who)), w.Why)
	case WaitRefused:
		return because(fmt.Sprintf("there is no majority: %s not give a vote now", does(w.Who)), w.Why)
	case WaitAhead:
		return fmt.Sprintf("%s more, and cannot lead", plural(w.Who, "holds", "hold"))
	case WaitPosition:
		return fmt.Sprintf("how far the log of %s goes is not known", w.Who)
	case WaitGrants:
		return fmt.Sprintf("it has won the election and has no majority of grants yet: %s not answered", plural(w.Who, "has", "have"))
	case WaitUnable:
		return because("it cannot lead", w.Why)
	case WaitVote:
		return "it has no vote"
	case WaitGrant:
		return fmt.Sprintf("nothing is heard of %s, and its grant has not run out", w.Who)
	case WaitRetry:
		return because("its attempt to be elected failed, and it tries again in a moment", w.Why)
	case WaitRecovery:
		return "a person ordered it to lead alone, and it asks the others whether they know of a leader"
	case WaitDisk:
		return "its volume has not taken yet what it must not forget"
	case WaitRestart:
		return "it was restarted a moment ago, and what it may have granted before has not run out"
	case WaitAside:
		return because(fmt.Sprintf("it stands aside for %s", w.Who), w.Why)
	case WaitReceiving:
		return "its server has not ended receiving from the old leader"
	case WaitStop:
		return because("it led, and its server has not ended yet", w.Why)
	case WaitPromotion:
		return fmt.Sprintf("%s has won the election and is being promoted", w.Who)
	case WaitRoute:
		return because("it leads, and clients are not sent to it yet", cmp.Or(w.Why, "the API server has not taken its address"))
	}
	return string(w.For)
}

func because(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + why
}

func plural(who, one, many string) string {
	if strings.Contains(who, ",") {
		return who + " " + many
	}
	return who + " " + one
}

func does(who string) string { return plural(who, "does", "do") }

// thing is what was waited for in a change of hands that is over, as in "waited 14.2 s for the API server". What is missing there is a
// step of the change itself.
func (f WaitFor) thing() string {
	switch f {
	case WaitAPIServer:
		return "the API server"
	case WaitRoute:
		return "its address to be taken"
	case WaitOlder, WaitLease:
		return "a Lease that can be used"
	case WaitOnly:
		return "the only one that held all"
	case WaitSilent:
		return "voters that did not answer"
	case WaitRefused:
		return "voters that did not give their vote"
	case WaitAhead:
		return "voters that held more"
	case WaitPosition:
		return "its own position"
	case WaitGrants:
		return "a majority of grants"
	case WaitUnable:
		return "being able to lead"
	case WaitVote:
		return "a vote"
	case WaitGrant:
		return "a grant to run out"
	case WaitDisk:
		return "its volume"
	case WaitRetry:
		return "its next attempt"
	case WaitRestart:
		return "what it granted before it was restarted"
	case WaitAside:
		return "another to go first"
	case WaitReceiving:
		return "its receiving to end"
	case WaitNothing, WaitStop, WaitPromotion, WaitRecovery:
	}
	return ""
}

// toldWait is from when on a wait is worth a word afterwards: an election without hindrance takes less.
const toldWait = 500 * time.Millisecond

// WaitedFor says what the winner waited for, the longest first; empty for nothing to speak of.
func (l Line) WaitedFor() string {
	kinds := slices.SortedFunc(maps.Keys(l.Waited), func(a, b WaitFor) int {
		if d := l.Waited[b] - l.Waited[a]; d != 0 {
			return int(d)
		}
		return strings.Compare(string(a), string(b))
	})
	var out []string
	for _, k := range kinds {
		if d := l.Waited[k]; d >= toldWait && k.thing() != "" {
			out = append(out, fmt.Sprintf("%.1f s for %s", d.Seconds(), k.thing()))
		}
	}
	return strings.Join(out, ", ")
}
