package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// TestWantOfMemoryIsTold : a session takes more than the container may have, and the kernel kills it. The server goes on; status and an event
// say what happened and what to do.
func TestWantOfMemoryIsTold(t *testing.T) {
	t.Parallel()
	d := shared.create(t, orders(shared.namespace(t), 1))
	d.awaitReady(3 * time.Minute)
	eventually(t.Context(), t, time.Minute, "clients to be sent to it", func() error {
		config, err := d.writable(t.Context())
		if err != nil {
			return err
		}
		return ping(t.Context(), config)
	})
	if err := d.gorge(t); err == nil {
		t.Fatal("900 MB found room in a container of 512 MiB")
	}
	d.await(time.Minute, "the status to tell of it", func(now *v1.Database) error {
		if i := now.Status.Instances; len(i) != 1 || i[0].MemoryKills == 0 && i[0].OutOfMemoryAt == nil {
			return fmt.Errorf("%+v", i)
		}
		return d.noted(t.Context(), v1.ReasonOutOfMemory, "raise spec.resources.limits.memory")
	})
	d.awaitReady(2 * time.Minute)
}

// gorge makes a text that is larger than the container's memory.
func (d *database) gorge(t *testing.T) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	config, err := d.writable(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }() // its server has most likely ended
	var n int64
	return c.QueryRow(ctx, "SELECT length(repeat('x', 900000000))").Scan(&n)
}
