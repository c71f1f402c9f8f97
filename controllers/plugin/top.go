package plugin

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/api/view"
)

// patience is how long the first table of an instance is waited for, and late how long a next one that is due.
const (
	patience = 10 * time.Second
	late     = 3 * time.Second
)

// topOptions are what top is asked for.
type topOptions struct {
	interval     time.Duration
	watch, total bool
	sort, role   string
	limit        int
	output, on   string
}

func newTop(s *session) *cobra.Command {
	var o topOptions
	c := &cobra.Command{
		Use:   "top DATABASE",
		Short: "Show the statements for which clients of a database wait most",
		Long: `Show the statements for which clients of a database wait most, and who has connections.

The probes of the nodes count them (kubectl plimsoll probe status). What was done in one interval is shown, of all instances together: how much of
the time that clients waited each statement took, calls a second, how long half, 95 and 99 of 100 calls took at the most, errors and rows a second.
It runs a command in the instances' pods, as psql does: that needs "create" of pods/exec in the namespace.`,
		Example: `  # What was done within two seconds
  kubectl plimsoll top orders -n shop

  # Again each five seconds: what fails most on the primary
  kubectl plimsoll top orders --watch --interval 5s --sort errors --role primary

  # All of one instance since its probe began, for programs
  kubectl plimsoll top orders --total --instance orders-2 -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			d, names, err := s.watched(cmd, args[0], o.on)
			if err != nil {
				return err
			}
			return s.top(cmd, d, names, o)
		},
	}
	c.Flags().DurationVar(&o.interval, "interval", 2*time.Second, "the time between two looks, 1s or more")
	c.Flags().BoolVarP(&o.watch, "watch", "w", false, "show it again each interval until interrupted")
	c.Flags().BoolVar(&o.total, "total", false, "all since the probe of each instance began, and not what was done in one interval")
	c.Flags().StringVar(&o.sort, "sort", orders()[0], "what comes first: "+strings.Join(orders(), ", "))
	c.Flags().IntVar(&o.limit, "limit", 20, "statements to show, the others are added up in one line; 0 for all")
	c.Flags().StringVar(&o.on, "instance", "", "one instance alone (default: all)")
	c.Flags().StringVar(&o.role, "role", "", "only what instances did while they had that role: primary or replica")
	c.Flags().StringVarP(&o.output, "output", "o", "", "json for one object an interval, with all statements and their whole texts, times in seconds")
	return c
}

func (o topOptions) check() error {
	switch {
	case o.interval < view.Every:
		return fmt.Errorf("--interval %s: use %s or more, which is how often probes tell", o.interval, view.Every)
	case !slices.Contains(orders(), o.sort):
		return fmt.Errorf("--sort %q: use one of %s", o.sort, strings.Join(orders(), ", "))
	case o.limit < 0:
		return fmt.Errorf("--limit %d: use the number of statements to show, or 0 for all", o.limit)
	case o.role != "" && o.role != string(v1.RolePrimary) && o.role != string(v1.RoleReplica):
		return fmt.Errorf("--role %q: use %s or %s, or leave it out", o.role, v1.RolePrimary, v1.RoleReplica)
	case o.output != "" && o.output != "json":
		return fmt.Errorf("--output %q: use json, or leave it out", o.output)
	}
	return nil
}

// top shows what instances do: once, or each interval until the person interrupts it.
func (s *session) top(cmd *cobra.Command, d *v1.Database, names []string, o topOptions) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	again := lookAgain
	if !o.watch {
		again = 0
	}
	sights, end := s.look(ctx, cmd, d.Namespace, names, wantTable, again)
	defer end()
	w := newWatcher(names, o)
	said := ""
	for first := true; ; first = false {
		if err := w.wait(ctx, sights, first); err != nil {
			if o.watch {
				return nil
			}
			return errors.New("interrupted before there was something to show")
		}
		p := w.picture(d, s.Now())
		if first && p.nothing() {
			return fmt.Errorf("no instance of database %s can be shown: %s", d.Name, strings.Join(p.notes(), "; "))
		}
		// Programs find it in the object, and who reads their log should, too.
		if notes := strings.Join(p.notes(), "\n"); o.output == "json" && notes != said {
			said = notes
			s.tell("%s", or(notes, "all instances are measured"))
		}
		if err := s.paint(p, o); err != nil {
			return fmt.Errorf("write the statements: %w", err)
		}
		if !o.watch {
			return nil
		}
	}
}

// paint writes a picture as it was asked for.
func (s *session) paint(p picture, o topOptions) error {
	if o.output == "json" {
		return p.json(s.Streams.Out)
	}
	width := 0
	if s.Streams.Width != nil {
		width = s.Streams.Width()
	}
	if !o.watch {
		return p.table(s.Streams.Out, o.limit, width)
	}
	var text strings.Builder
	return errors.Join(p.table(&text, o.limit, width), s.redraw(text.String()))
}

// watcher follows the tables of instances.
type watcher struct {
	topOptions
	all []*followed
}

// followed is one instance as it was last heard of.
type followed struct {
	name string
	// earlier is the table of the last picture, later the newest one; nil where there is none.
	earlier, later *view.Table
	// amiss is why nothing comes.
	amiss error
	// silent was waited for in vain; it is not again, until it tells something.
	silent bool
}

func newWatcher(names []string, o topOptions) *watcher {
	w := &watcher{topOptions: o}
	for _, name := range names {
		w.all = append(w.all, &followed{name: name})
	}
	return w
}

// wait until all instances that can be waited for have told enough for a picture, and the interval is over but for the first one. It fails
// when the context ends.
func (w *watcher) wait(ctx context.Context, sights <-chan sight, first bool) error {
	due, most := w.interval, w.interval+late
	if first {
		due, most = 0, w.interval+patience
	}
	pace, end := time.NewTimer(due), time.NewTimer(most)
	defer pace.Stop()
	defer end.Stop()
	for paced := first; ; {
		if paced && !slices.ContainsFunc(w.all, func(f *followed) bool { return w.awaited(f, first) }) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-pace.C:
			paced = true
		case <-end.C:
			for _, f := range w.all {
				f.silent = f.silent || w.awaited(f, first)
			}
		case seen := <-sights:
			for _, f := range w.all {
				if f.name == seen.instance {
					f.take(seen)
				}
			}
		}
	}
}

// awaited instances have not told enough yet.
func (w *watcher) awaited(f *followed, first bool) bool {
	switch {
	case f.amiss != nil || f.silent:
		return false
	case f.later == nil:
		return true
	case w.total && first:
		return false
	}
	// Tables come each second, but not to the millisecond.
	return f.later.At.Sub(f.earlier.At) < w.interval-view.Every/2
}

func (f *followed) take(seen sight) {
	switch l := seen.line; {
	case seen.err != nil:
		f.earlier, f.later, f.amiss = nil, nil, seen.err
	case l.Probe != nil && !*l.Probe:
		f.earlier, f.later, f.amiss = nil, nil, errNoProbe
	case l.Table != nil:
		f.later, f.amiss, f.silent = l.Table, nil, false
		// The first one; or the node's clock was put back.
		if f.earlier == nil || f.later.At.Before(f.earlier.At) {
			f.earlier = l.Table
		}
	case l.Probe != nil:
		f.amiss = nil
	}
}

// picture of what was done since the last one.
func (w *watcher) picture(d *v1.Database, now time.Time) picture {
	p := picture{at: now, namespace: d.Namespace, database: d.Name, total: w.total}
	var all []done
	var connected [][]view.Client
	for _, f := range w.all {
		m := measured{name: f.name}
		switch {
		case f.amiss != nil:
			m.note = f.amiss.Error()
		case f.later == nil || !w.total && f.later == f.earlier:
			m.note = "its probe told too little in time: see kubectl plimsoll probe status"
		default:
			earlier := f.earlier
			if w.total {
				earlier = nil
			}
			did := between(earlier, *f.later)
			all, connected = append(all, did), append(connected, f.later.Clients)
			m.shown, m.state, m.began, m.seconds = true, f.later.State, f.later.Began, did.seconds
			m.note = stateWords(m.state)
			p.seconds = max(p.seconds, did.seconds)
			f.earlier = f.later
		}
		p.instances = append(p.instances, m)
	}
	p.statements = sorted(statements(all, w.role), w.sort)
	p.all = together(p.statements)
	p.clients = clients(connected)
	return p
}
