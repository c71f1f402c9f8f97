package agent

import "fmt"

// withheld says why a replica that stands still must not be copied anew now; empty if it may. One member of a Database at a time is, and
// none on whose word the writes depend.
func withheld(s seen) string {
	record := s.Decision.Record
	if record.Version == 0 {
		return "the Lease has not been read yet"
	}
	if s.Rebuilds != "" && s.Rebuilds != s.Aim.Member {
		return fmt.Sprintf("another instance is being copied (%s)", s.Rebuilds)
	}
	if s.Cramped {
		return "its volume has no room"
	}
	if s.Aim.Synchronous == synchronousRequired && len(record.Data()) == 2 && record.IsVoter(s.Aim.Member) && s.Streams {
		return "it still receives, writes need it for that, and there is no other replica"
	}
	return ""
}

// turnOf this member among the others by name, the leader left out.
func turnOf(s seen) int {
	turn := 0
	for _, m := range s.Aim.Members {
		if m.Name < s.Aim.Member && m.Name != s.Decision.Leader {
			turn++
		}
	}
	return min(turn, len(s.Aim.Members))
}
