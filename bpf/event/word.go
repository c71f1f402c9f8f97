package event

import "iter"

// Redis and Valkey name an error by the first word of its message. States of these lie beyond every SQLSTATE.
const firstWord State = 1 << 30

// words are those that servers use; what scripts and modules make up is NoState.
func words() []string {
	return []string{
		"ERR", "WRONGTYPE", "MOVED", "ASK", "OOM", "NOAUTH", "NOPERM", "WRONGPASS", "NOSCRIPT", "BUSY", "BUSYKEY", "BUSYGROUP", "NOGROUP", "LOADING",
		"MASTERDOWN", "READONLY", "MISCONF", "NOREPLICAS", "EXECABORT", "CROSSSLOT", "CLUSTERDOWN", "TRYAGAIN", "UNBLOCKED", "NOTBUSY", "NOMASTERLINK",
		"INPROG", "NOGOODSLAVE", "UNKILLABLE", "NOPROTO", "DENIED", "NOTREADY", "REDIRECT", "IOERR", "FENCED", "SYNTAX", "INVALIDOBJ",
	}
}

// Words are the first words of errors that have states of their own.
func Words() iter.Seq2[string, State] {
	return func(yield func(string, State) bool) {
		for i, word := range words() {
			if !yield(word, firstWord+State(i)) {
				return
			}
		}
	}
}

// Word is the first word of an error of Redis, if the state is one.
func (s State) Word() (string, bool) {
	all := words()
	if s < firstWord || int(s-firstWord) >= len(all) {
		return "", false
	}
	return all[s-firstWord], true
}
