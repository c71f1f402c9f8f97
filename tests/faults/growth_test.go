package faults

import (
	"strings"
	"testing"
	"time"
)

// TestLeaksAreFound: what grows is found, and what only breathes is not.
func TestLeaksAreFound(t *testing.T) {
	base := Size{What: "orders-1", Memory: 9 << 10, Files: 30, Sockets: 12, Threads: 9, Goroutines: 40}
	for sentence, row := range map[string]struct {
		grows func(s *Size, n int)
		want  string
	}{
		"nothing grows":          {func(*Size, int) {}, ""},
		"one busy moment":        {func(s *Size, n int) { s.Files += n % 2 * 5; s.Goroutines += n % 3 * 4 }, ""},
		"a file with each fault": {func(s *Size, n int) { s.Files += n; s.Sockets += n }, "orders-1 has grown from 16 to 32 sockets; orders-1 has grown from 34 to 50 files"},
		"a goroutine":            {func(s *Size, n int) { s.Goroutines += n }, "orders-1 has grown from 44 to 60 goroutines"},
		"memory":                 {func(s *Size, n int) { s.Memory += 1024 * n }, "orders-1 has grown from 13312 to 29696 KiB"},
		"threads":                {func(s *Size, n int) { s.Threads += n }, "orders-1 has grown from 13 to 29 threads"},
		"an agent that is mute":  {func(s *Size, _ int) { s.Goroutines = 0 }, "how many goroutines orders-1 has is not known"},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := Growth{}
			for n := range 24 {
				now := base
				row.grows(&now, n)
				if n >= 8 && n < 16 {
					now.Memory += 1 << 20 // between, it may be what it likes
				}
				g.Note(map[int]Size{7: now, 8: {What: "young"}}, time.Unix(int64(60*n), 0))
			}
			delete(g, 8)
			found, compared := g.Leaks(20 * time.Minute)
			if got := strings.Join(found, "; "); got != row.want || len(compared) != 1 {
				t.Errorf("found %q of %v, want %q", got, compared, row.want)
			}
			if _, compared := g.Leaks(time.Hour); len(compared) != 0 {
				t.Errorf("it has not lived for so long: %v", compared)
			}
		})
	}
}
