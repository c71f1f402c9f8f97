package driver

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// TestAnImageOfAnotherReleaseIsNamed: neither is a new database begun by another release than the spec asks for, nor is data touched
// that another release wrote, and what is said names both and what to correct.
func TestAnImageOfAnotherReleaseIsNamed(t *testing.T) {
	c := newCluster(t)
	has := installedMajor(t)
	m := c.add(false)
	r := c.role(m, engine.Primary, 1, nil)
	r.Initialise, r.Database.Version = true, strconv.Itoa(has+1)+".2"
	var problem *Problem
	err := m.d.Prepare(c.ctx(), r)
	if !errors.As(err, &problem) {
		t.Fatalf("a wrong release began the database: %v", err)
	}
	want := "spec.version asks for PostgreSQL " + strconv.Itoa(has+1) + " and the image holds PostgreSQL " + strconv.Itoa(has) + ": correct one of them"
	if problem.Reason != "WrongVersion" || problem.Message != want {
		t.Errorf("%s: %s", problem.Reason, problem.Message)
	}
	if m.d.hasData() {
		t.Fatal("there is data all the same")
	}
	r.Database.Version = strconv.Itoa(has) + ".99"
	must(t, m.d.Prepare(c.ctx(), r))

	must(t, os.WriteFile(filepath.Join(m.d.data(), "PG_VERSION"), []byte(strconv.Itoa(has+1)+"\n"), 0o600))
	want = "the data on the volume is PostgreSQL " + strconv.Itoa(has+1) + "'s and the image holds PostgreSQL " + strconv.Itoa(has) +
		"; set spec.image or spec.version to PostgreSQL " + strconv.Itoa(has+1)
	if _, err := New(m.cfg); err == nil || err.Error() != want {
		t.Errorf("opened with %v", err)
	}
}
