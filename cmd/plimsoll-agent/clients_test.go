package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestClientsOfALostPrimary: those of one that dies hear of it at once, whether they wait for an answer or are idle. Those of one that falls
// silent wait as long as the settings of docs/how-to/connect.md say, and without them for ever.
func TestClientsOfALostPrimary(t *testing.T) {
	t.Parallel() // it waits more than it works
	if !alone(t, "^TestClientsOfALostPrimary$") {
		return
	}
	d := newDatabase(t, 1)
	one := d.members[0]
	one.start()
	d.until("it leads", 30*time.Second, d.whole)

	t.Run("silent", func(t *testing.T) { d.t = t; d.silentClients(t, one) })
	t.Run("dead", func(t *testing.T) {
		d.t = t
		d.until("it leads", 30*time.Second, d.whole)
		idle, busy := must(d.connect(t.Context(), one.pod.Address))(t), must(d.connect(t.Context(), one.pod.Address))(t)
		ended := make(chan string, 2)
		go func() {
			_, _ = idle.PgConn().Conn().Read(make([]byte, 1)) // nothing comes until the end does
			ended <- "idle"
		}()
		go func() {
			_, _ = busy.Exec(context.Background(), "SELECT pg_sleep(60)")
			ended <- "busy"
		}()
		time.Sleep(500 * time.Millisecond)
		begin := time.Now()
		one.kill()
		for range 2 {
			select {
			case who := <-ended:
				t.Logf("the %s client hears of it after %s", who, time.Since(begin).Round(time.Millisecond))
			case <-time.After(15 * time.Second):
				t.Error("a client of a dead server still waits after 15 s")
			}
		}
	})
}

// silentClients cuts off the primary under clients with the documented settings and without.
func (d *database) silentClients(t *testing.T, one *memberPod) {
	page := string(must(os.ReadFile("../../docs/how-to/connect.md"))(t))
	row := regexp.MustCompile("(?m)^\\| libpq [^|]*\\| `([^`]*)`").FindStringSubmatch(page)
	if row == nil {
		t.Fatal("docs/how-to/connect.md has no settings for libpq")
	}
	base := fmt.Sprintf("host=%s port=%d user=app password='%s' dbname=app sslmode=verify-full sslrootcert=%s", one.pod.Address, d.port, password, filepath.Join(one.pod.Agent.ServerTLSDir, "ca.crt"))
	const ask = "SELECT pg_sleep(300)"
	late := make(chan struct{})
	type client struct {
		what, settings, sql string
		after               bool // it begins once the primary is silent
		most                time.Duration
	}
	clients := []client{
		{"connects", row[1], "SELECT 1", true, 8 * time.Second},
		{"waits for an answer", row[1], ask, false, 18 * time.Second},
		{"was idle and asks", row[1], "", false, 13 * time.Second},
		{"waits for an answer, without the settings", "", ask, false, 0},
	}
	type result struct {
		client client
		took   time.Duration
		said   string
	}
	results := make(chan result, len(clients))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begin := time.Time{}
	for _, c := range clients {
		args := []string{base + " " + c.settings, "-X", "-v", "ON_ERROR_STOP=1"}
		if c.sql != "" {
			args = append(args, "-c", c.sql)
		}
		cmd := exec.CommandContext(ctx, "psql", args...)
		if c.sql == "" {
			in := must(cmd.StdinPipe())(t)
			go func() {
				_, _ = in.Write([]byte("SELECT 1;\n"))
				<-late
				_, _ = in.Write([]byte("SELECT 2;\n")) // psql's own end tells
			}()
		}
		go func() {
			if c.after {
				<-late
			}
			out, _ := cmd.CombinedOutput()
			results <- result{c, time.Since(begin), string(out)}
		}()
	}
	d.until("they are connected", 20*time.Second, func() error {
		got, err := one.ask("SELECT string_agg(query, ' ' ORDER BY query) FROM pg_stat_activity WHERE application_name = 'psql' AND usename = 'app'")
		if want := "SELECT 1; " + ask + " " + ask; err == nil && got != want {
			err = fmt.Errorf("they have said %q, want %q", got, want)
		}
		return err
	})
	tool(t, fmt.Sprintf("add table ip silence\nadd chain ip silence in { type filter hook input priority 0; }\nadd rule ip silence in ip daddr %s drop\nadd rule ip silence in ip saddr %s drop\n", one.pod.Address, one.pod.Address), "nft", "-f", "-")
	begin = time.Now()
	close(late)
	patience := time.After(25 * time.Second)
	heard := 0
	for range clients {
		select {
		case r := <-results:
			heard++
			t.Logf("a client that %s gives up after %s: %s", r.client.what, r.took.Round(100*time.Millisecond), strings.TrimSpace(r.said))
			if r.client.most == 0 || r.took > r.client.most || r.took < time.Second {
				t.Errorf("a client that %s gave up after %s, want %s at most", r.client.what, r.took, r.client.most)
			}
		case <-patience:
		}
	}
	if heard != len(clients)-1 {
		t.Errorf("%d clients have given up after 25 s, want all but the one without settings", heard)
	}
	tool(t, "delete table ip silence\n", "nft", "-f", "-")
}
