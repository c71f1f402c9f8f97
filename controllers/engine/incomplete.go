package engine

// Incomplete is an error of Become whose role is in force all the same: the server serves in it and the synchronous list holds.
// What is missing beside it (a slot, an account, a parameter) can be mended later and must cost nobody the leadership.
type Incomplete struct{ Err error }

// Error of what is missing.
func (i *Incomplete) Error() string { return i.Err.Error() }

// StillReceives is an error of Become for a replica of nobody whose server does not end receiving: others wait for that, and nothing but
// its end ends it.
type StillReceives struct{}

// Error says so.
func (*StillReceives) Error() string { return "it does not end receiving" }

// Unwrap gives what is missing.
func (i *Incomplete) Unwrap() error { return i.Err }
