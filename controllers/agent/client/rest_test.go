package client

import (
	"testing"
	"time"
)

func TestNothingIsKeptForMembersThatNobodyCalls(t *testing.T) {
	c := New("u1", nil, WithIdle(20*time.Millisecond))
	t.Cleanup(c.Close)
	before, err := c.of("orders-1")
	if err != nil {
		t.Fatal(err)
	}
	kept := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.members)
	}
	for end := time.Now().Add(10 * time.Second); kept() > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it is kept")
		}
	}
	if after, err := c.of("orders-1"); err != nil || after == before {
		t.Errorf("the next call has %p after %p, %v", after, before, err)
	}
}
