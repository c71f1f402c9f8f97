package main

import (
	"bytes"
	"errors"
	"net"
	"os"
	"strconv"
	"testing"
	"time"
)

// TestASecondPodOfAnInstanceWaitsForTheVolume: a pod was deleted by force, or came back from a backup of etcd under another UID, and its
// old one ends only now. Both mount one volume, and the promise on it must not be read, and given, by two.
func TestASecondPodOfAnInstanceWaitsForTheVolume(t *testing.T) {
	t.Parallel() // it waits more than it works
	d := newDatabase(t, 2)
	for _, m := range d.members {
		m.start()
	}
	d.until("both are whole", 60*time.Second, d.whole)
	_, old := d.roles(t)
	again := d.make(old.name+"-again", d.network+".99")
	agent := old.pod.Agent
	agent.Address, agent.Host = again.pod.Address, again.pod.Address
	again.pod.Agent, again.pod.Data, again.pod.WAL = agent, old.pod.Data, old.pod.WAL
	again.start()
	t.Cleanup(again.kill)

	answers := func() error {
		c, err := net.DialTimeout("tcp", net.JoinHostPort(again.pod.Address, strconv.Itoa(d.agentPort)), time.Second)
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	d.until("the second one says what it waits for", 20*time.Second, func() error {
		raw, err := os.ReadFile(again.at("log"))
		if err == nil && !bytes.Contains(raw, []byte("waiting for the data volume")) {
			err = errors.New("not said")
		}
		return err
	})
	for began := time.Now(); time.Since(began) < 2*time.Second; time.Sleep(50 * time.Millisecond) {
		if answers() == nil {
			t.Fatal("two agents of one member answer at one time, from one promise")
		}
	}
	old.kill()
	d.until("the second one takes part once the first has ended", 20*time.Second, answers)
}
