// Package names finds the addresses of members, also while the cluster's DNS is away: half of its servers may have gone with the leader's
// node, and who may write must not wait for them.
package names

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"
)

const (
	// patience with DNS where an address is known from before.
	patience = 100 * time.Millisecond
	// limit of one question to it.
	limit = 5 * time.Second
	// most names that are remembered; far above what a Database has members.
	most = 64
)

// Book looks names up and remembers the newest answers. An address that is out of date does no harm: whoever answers there has to show the
// member's certificate.
type Book struct {
	ask func(ctx context.Context, host string) ([]string, error)

	mu    sync.Mutex
	known map[string][]string      // by DNS
	told  map[string]string        // by the members themselves, through their leader
	asked map[string]chan struct{} // closed when the question under way has its answer
}

// New returns a book that asks the system's resolver.
func New() *Book { return newBook(net.DefaultResolver.LookupHost) }

func newBook(ask func(ctx context.Context, host string) ([]string, error)) *Book {
	return &Book{ask: ask, known: map[string][]string{}, told: map[string]string{}, asked: map[string]chan struct{}{}}
}

// Learn takes a member's own word for where it is.
func (b *Book) Learn(host, address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.told[host]; !known && len(b.told) >= most {
		clear(b.told)
	}
	b.told[host] = address
}

// All that is known, an address for each host: the host's own word where there is one.
func (b *Book) All() map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make(map[string]string, len(b.known))
	for host, addresses := range b.known {
		if len(addresses) > 0 {
			all[host] = addresses[0]
		}
	}
	for host, address := range b.told {
		all[host] = address
	}
	return all
}

// Lookup returns the addresses where a host may be: its own word, and what DNS says where it answers soon, else what it said before. Of a
// host of which nothing is known it is what DNS says in the end.
func (b *Book) Lookup(ctx context.Context, host string) ([]string, error) {
	if net.ParseIP(host) != nil {
		return []string{host}, nil
	}
	b.mu.Lock()
	remembered := len(b.places(host)) > 0
	b.mu.Unlock()
	if !remembered {
		return b.question(ctx, host)
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-b.refresh(host):
	case <-timer.C:
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.places(host), nil
}

// places that are known of a host, each once.
func (b *Book) places(host string) []string {
	known := b.known[host]
	if told, ok := b.told[host]; ok && !slices.Contains(known, told) {
		return append([]string{told}, known...)
	}
	return known
}

// refresh asks once at a time, beside whoever waits.
func (b *Book) refresh(host string) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if done := b.asked[host]; done != nil {
		return done
	}
	done := make(chan struct{})
	b.asked[host] = done
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		_, _ = b.question(ctx, host) // without an answer the one from before holds
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.asked, host)
		close(done)
	}()
	return done
}

func (b *Book) question(ctx context.Context, host string) ([]string, error) {
	found, err := b.ask(ctx, host)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.known) >= most {
		clear(b.known)
	}
	b.known[host] = found
	return found, nil
}
