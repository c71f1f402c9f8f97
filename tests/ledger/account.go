package ledger

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Account is what a run was told: every acknowledgement by its time, and the writes in doubt.
type Account struct {
	Acks    []Ack
	InDoubt map[Entry]bool
	Refused int
}

// Gap is a time without an acknowledgement.
type Gap struct {
	From, To time.Time
}

// Length of the gap.
func (g Gap) Length() time.Duration { return g.To.Sub(g.From) }

// Between is the part of the account that was acknowledged from one time until another.
func (a Account) Between(from, to time.Time) Account {
	a.Acks = slices.DeleteFunc(slices.Clone(a.Acks), func(k Ack) bool { return k.Ended.Before(from) || !k.Ended.Before(to) })
	return a
}

// LongestGap between two acknowledgements that follow each other, after a time.
func (a Account) LongestGap(after time.Time) Gap {
	var longest Gap
	for i := 1; i < len(a.Acks); i++ {
		g := Gap{From: a.Acks[i-1].Ended, To: a.Acks[i].Ended}
		if g.To.After(after) && g.Length() > longest.Length() {
			longest = g
		}
	}
	return longest
}

// Hands counts how often the instance that acknowledges changed. An acknowledgement that was sent before the change and came
// after it is the old instance's last word, not a change back.
func (a Account) Hands() int {
	hands := 0
	for i, now := 0, (Ack{}); i < len(a.Acks); i++ {
		next := a.Acks[i]
		if i > 0 && next.Instance != now.Instance {
			if next.Began.Before(now.Ended) {
				continue
			}
			hands++
		}
		now = next
	}
	return hands
}

// Merge accounts of runs with different writers on one database.
func Merge(accounts ...Account) Account {
	all := Account{InDoubt: map[Entry]bool{}}
	for _, a := range accounts {
		all.Acks = append(all.Acks, a.Acks...)
		maps.Copy(all.InDoubt, a.InDoubt)
		all.Refused += a.Refused
	}
	slices.SortFunc(all.Acks, func(a, b Ack) int { return a.Ended.Compare(b.Ended) })
	return all
}

// begins is when each term was first heard of: the end of its first acknowledgement.
func (a Account) begins() map[int64]time.Time {
	first := map[int64]time.Time{}
	for _, k := range a.Acks {
		if at, known := first[k.Term]; !known || k.Ended.Before(at) {
			first[k.Term] = k.Ended
		}
	}
	return first
}

// over says since when a term was over for certain at a time: an acknowledgement of a later one had come before it.
func over(first map[int64]time.Time, term int64, at time.Time) (since time.Time, yes bool) {
	for later, begun := range first {
		if later > term && begun.Before(at) && (!yes || begun.Before(since)) {
			since, yes = begun, true
		}
	}
	return since, yes
}

// SecondWriters are acknowledgements that prove two writers: of writes that were sent after a later term had acknowledged one, and of two
// instances in one term.
func (a Account) SecondWriters() []Ack {
	first := a.begins()
	owner := map[int64]string{}
	var found []Ack
	for _, k := range a.Acks {
		if _, known := owner[k.Term]; !known {
			owner[k.Term] = k.Instance
		}
		if _, yes := over(first, k.Term, k.Began); yes || owner[k.Term] != k.Instance {
			found = append(found, k)
		}
	}
	return found
}

// Verdict is what an instance holds against what was acknowledged.
type Verdict struct {
	// Lost were acknowledged and are not there.
	Lost []Entry
	// Undone were in doubt, and are not there either.
	Undone int
	// Strange are there and were never sent.
	Strange []Entry
	// Disordered are there twice or before an earlier entry of their writer.
	Disordered []Entry
	// Held is how many entries are there, and Hash is over all of them in order.
	Held int
	Hash string
}

// Err is nil if nothing is wrong.
func (v Verdict) Err() error {
	if len(v.Lost)+len(v.Strange)+len(v.Disordered) == 0 {
		return nil
	}
	return fmt.Errorf("%d acknowledged entries lost %v, %d never sent %v, %d out of order %v", len(v.Lost), few(v.Lost), len(v.Strange), few(v.Strange), len(v.Disordered), few(v.Disordered))
}

func few(all []Entry) []Entry { return all[:min(len(all), 5)] }

// Judge compares what an instance holds with the account.
func (a Account) Judge(held []Stored) Verdict {
	held = slices.Clone(held)
	slices.SortFunc(held, func(x, y Stored) int { return cmp.Compare(x.Order, y.Order) })
	v := Verdict{Held: len(held)}
	there := make(map[Entry]bool, len(held))
	newest := map[int]int64{}
	sum := sha256.New()
	acked := make(map[Entry]bool, len(a.Acks))
	for _, ack := range a.Acks {
		acked[ack.Entry] = true
	}
	for _, s := range held {
		fmt.Fprintf(sum, "%d/%d;", s.Writer, s.Seq)
		if there[s.Entry] || s.Seq < newest[s.Writer] {
			v.Disordered = append(v.Disordered, s.Entry)
		}
		if !acked[s.Entry] && !a.InDoubt[s.Entry] {
			v.Strange = append(v.Strange, s.Entry)
		}
		there[s.Entry], newest[s.Writer] = true, max(newest[s.Writer], s.Seq)
	}
	for _, ack := range a.Acks {
		if !there[ack.Entry] {
			v.Lost = append(v.Lost, ack.Entry)
		}
	}
	for e := range a.InDoubt {
		if !there[e] {
			v.Undone++
		}
	}
	v.Hash = hex.EncodeToString(sum.Sum(nil)[:8])
	return v
}
