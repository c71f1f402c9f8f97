package engine

// Incomplete is an error of Become whose role is in force all the same: the server serves in it and the synchronous list holds.
// What is missing beside it (a slot, an account, a parameter) can be mended later and must cost nobody the leadership.
type Incomplete struct{ Err error }

// Error of what is missing.
func (i *Incomplete) Error() string { return i.Err.Error() }

// Unwrap gives what is missing.
func (i *Incomplete) Unwrap() error { return i.Err }
