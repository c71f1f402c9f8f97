package e2e

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/tests/cluster"
	"github.com/plimsoll-dev/plimsoll-operator/tests/ledger"
)

// The applications of a fault run: how often they write, and how long they are patient with a write and with a connection attempt. What
// they wait for longer than the database needs counts as a gap, so they are as impatient as a client with time-outs of its own.
const (
	writers       = 2
	writeEvery    = 20 * time.Millisecond
	writePatience = time.Second
	dialPatience  = 500 * time.Millisecond
	// directEvery is the pace of those who try every instance, primary or not.
	directEvery = 250 * time.Millisecond
	// directFirst is the number of the first direct writer; applications are below.
	directFirst = 100
	// mostInstances that have a direct writer and a reader.
	mostInstances = 5
	mostAcks      = 2_000_000
)

// witnesses of one run: applications on the -rw Service, and at every instance a writer and a reader that come from its own node, so
// that a node that is cut off keeps them.
type witnesses struct {
	*database
	places *places
	apps   *ledger.Run
	direct []*ledger.Run
	watch  *ledger.Watch
}

// place is where an instance's pod is.
type place struct{ address, node string }

// places follows the pods; while the API server is away the last word holds.
type places struct {
	mu    sync.Mutex
	known map[string]place
	dials map[string]cluster.DialFunc
}

func (d *database) follow(ctx context.Context) *places {
	p := &places{known: map[string]place{}, dials: map[string]cluster.DialFunc{}}
	p.look(ctx, d)
	go func() {
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				p.look(ctx, d)
			}
		}
	}()
	return p
}

func (p *places) look(ctx context.Context, d *database) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	pods := &corev1.PodList{}
	if err := d.List(ctx, pods, client.InNamespace(d.key.Namespace), client.MatchingLabels{v1.LabelDatabase: d.key.Name}); err != nil {
		return
	}
	found := map[string]place{}
	for _, pod := range pods.Items {
		if pod.Status.PodIP != "" {
			found[pod.Name] = place{pod.Status.PodIP, pod.Spec.NodeName}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.Copy(p.known, found)
}

func (p *places) of(c *cluster.Cluster, instance string) (place, cluster.DialFunc, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, known := p.known[instance]
	if !known {
		return place{}, nil, fmt.Errorf("instance %s has no address", instance)
	}
	if p.dials[at.node] == nil {
		dial, err := c.DialFrom(at.node)
		if err != nil {
			return place{}, nil, err
		}
		p.dials[at.node] = dial
	}
	return at, p.dials[at.node], nil
}

// oneInstance is a ledger.Store of an instance's own address, dialled from its own node.
type oneInstance struct {
	places  *places
	cluster *cluster.Cluster
	base    *pgx.ConnConfig
	name    string // of the instance
	host    string // in its certificate
}

func (o oneInstance) config(context.Context) (*pgx.ConnConfig, error) {
	at, dial, err := o.places.of(o.cluster, o.name)
	if err != nil {
		return nil, err
	}
	config := o.base.Copy()
	config.Host, config.TLSConfig.ServerName, config.DialFunc = at.address, o.host, pgconn.DialFunc(dial)
	return config, nil
}

// Open implements ledger.Store.
func (o oneInstance) Open(ctx context.Context) (ledger.Session, error) {
	config, err := o.config(ctx)
	if err != nil {
		return nil, err
	}
	return ledger.Postgres{Config: config}.Open(ctx)
}

// witness begins an empty ledger and starts everybody.
func (d *database) witness(ctx context.Context, t *testing.T) *witnesses {
	t.Helper()
	config, err := d.writable(ctx)
	if err != nil {
		t.Fatal(err)
	}
	apps := ledger.Postgres{Config: config}
	eventually(ctx, t, time.Minute, "ledger begun through the -rw Service", func() error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		return apps.Renew(ctx)
	})
	w := &witnesses{database: d, places: d.follow(ctx)}
	w.apps = ledger.Start(ctx, ledger.Config{
		Store: apps, Writers: writers, Every: writeEvery, Patience: writePatience, Dial: dialPatience, Most: mostAcks,
	})
	var lookers []ledger.Looker
	for i := range mostInstances {
		name := fmt.Sprintf("%s-%d", d.key.Name, i+1)
		at := oneInstance{
			places: w.places, cluster: d.cluster, base: config, name: name,
			host: fmt.Sprintf("%s.%s-members.%s.svc", name, d.key.Name, d.key.Namespace),
		}
		w.direct = append(w.direct, ledger.Start(ctx, ledger.Config{
			Store: at, Writers: 1, First: directFirst + i, Every: directEvery, Patience: writePatience, Dial: dialPatience, Keep: true, Most: mostAcks,
		}))
		lookers = append(lookers, &ledger.Lookout{Config: at.config})
	}
	w.watch = ledger.StartWatch(ctx, lookers, directEvery, dialPatience, mostAcks)
	return w
}

// newest acknowledgement of the applications, or of anybody.
func (w *witnesses) newest(anybody bool) (ledger.Ack, bool) {
	best, found := w.apps.Newest()
	if !anybody {
		return best, found
	}
	for _, r := range w.direct {
		if a, ok := r.Newest(); ok && (!found || a.Ended.After(best.Ended)) {
			best, found = a, true
		}
	}
	return best, found
}

// flows waits for an acknowledged write that was sent after a time, under a later term than the given one.
func (w *witnesses) flows(ctx context.Context, t *testing.T, limit time.Duration, after time.Time, term int64, anybody bool) ledger.Ack {
	t.Helper()
	var got ledger.Ack
	eventually(ctx, t, limit, "an acknowledged write", func() error {
		a, found := w.newest(anybody)
		if !found || !a.Began.After(after) || a.Term <= term {
			_, last := w.apps.Acknowledged()
			return fmt.Errorf("the newest is %+v; last refusal: %w", a, last)
		}
		got = a
		return nil
	})
	return got
}

// testimony is what the witnesses saw in all.
type testimony struct {
	apps, all ledger.Account
	sights    []ledger.Sight
}

// stop ends everybody.
func (w *witnesses) stop() (testimony, error) {
	sights, dropped := w.watch.Stop()
	if dropped > 0 {
		return testimony{}, fmt.Errorf("%d sights of the readers were too many to keep", dropped)
	}
	apps, err := w.apps.Stop()
	if err != nil {
		return testimony{}, err
	}
	accounts := []ledger.Account{apps}
	for _, r := range w.direct {
		a, err := r.Stop()
		if err != nil {
			return testimony{}, err
		}
		accounts = append(accounts, a)
	}
	return testimony{apps: apps, all: ledger.Merge(accounts...), sights: sights}, nil
}

// catchUp is how long replicas may take to hold what the leader holds, once nobody writes any more.
const catchUp = 20 * time.Second

// verify holds every instance against what was acknowledged, gives replicas a moment to catch up, and returns how many entries the
// worst instance lacks, and how many that were in doubt, with what else is wrong. Where loses is set, entries that are lacking are
// counted and nothing worse.
func (w *witnesses) verify(ctx context.Context, all ledger.Account, loses bool) (lost, undone int, problems []string) {
	// A write in doubt may still take effect after it was given up, so one look does not tell instances apart.
	for began := time.Now(); ; time.Sleep(300 * time.Millisecond) {
		lost, undone, problems = w.compare(ctx, all, loses)
		if len(problems) == 0 && (lost == 0 || time.Since(began) > catchUp/4) || time.Since(began) > catchUp || ctx.Err() != nil {
			return lost, undone, problems
		}
	}
}

func (w *witnesses) compare(ctx context.Context, all ledger.Account, loses bool) (lost, undone int, problems []string) {
	now, err := w.get(ctx)
	if err != nil {
		return 0, 0, []string{"the instances were not compared: " + err.Error()}
	}
	hashes := map[string][]string{}
	for _, i := range now.Status.Instances {
		held, err := w.read(ctx, i.Name)
		if err != nil {
			problems = append(problems, fmt.Sprintf("instance %s: %v", i.Name, err))
			continue
		}
		verdict := all.Judge(held)
		lost, undone = max(lost, len(verdict.Lost)), max(undone, verdict.Undone)
		if loses {
			verdict.Lost = nil
		}
		if err := verdict.Err(); err != nil {
			problems = append(problems, fmt.Sprintf("instance %s: %v", i.Name, err))
		}
		hashes[verdict.Hash] = append(hashes[verdict.Hash], i.Name)
	}
	if len(hashes) > 1 {
		problems = append(problems, fmt.Sprintf("the instances hold different ledgers: %v", hashes))
	}
	return lost, undone, problems
}

func (w *witnesses) read(ctx context.Context, instance string) ([]ledger.Stored, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	config, err := w.instance(ctx, instance)
	if err != nil {
		return nil, err
	}
	return ledger.Postgres{Config: config}.Read(ctx)
}
