package main

import "testing"

// TestIdentityOutlivesTheProcess in a pod, so that a manager that was killed goes on at once; elsewhere no two processes share one.
func TestIdentityOutlivesTheProcess(t *testing.T) {
	ask := func(env map[string]string) string {
		t.Helper()
		id, err := identityOf(func(name string) string { return env[name] })
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	pod := map[string]string{"POD_NAME": "plimsoll-manager-7d"}
	if a, b := ask(pod), ask(pod); a != b || a != "plimsoll-manager-7d" {
		t.Errorf("in a pod it is %q, and %q after a restart", a, b)
	}
	if a, b := ask(nil), ask(nil); a == b {
		t.Errorf("two processes of one host are both %q", a)
	}
}
