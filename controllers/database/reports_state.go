package database

import "github.com/plimsoll-dev/plimsoll-operator/controllers/engine"

// stateOf is a report without what moves all the time. Volumes and lag count by coarse steps, so that status follows them.
func stateOf(r engine.Report) engine.Report {
	r.Position = engine.Position{Timeline: r.Position.Timeline}
	r.LagBytes = lagClass(r.LagBytes)
	r.Data.Used, r.WAL.Used = percent(r.Data), percent(r.WAL)
	r.WALBytes, r.Connections, r.AuthFailures, r.Slots = 0, 0, 0, nil
	r.Applied, r.Goroutines = engine.Position{}, 0
	return r
}

// lagClass is -1 for unknown, else the power of sixteen megabytes that the lag is in.
func lagClass(lag int64) int64 {
	if lag < 0 {
		return -1
	}
	var class int64
	for limit := int64(16 << 20); lag >= limit && class < 8; limit *= 16 {
		class++
	}
	return class
}

// percent of a volume that is in use, 0 if its size is not known.
func percent(v engine.VolumeUse) int64 {
	if v.Size <= 0 {
		return 0
	}
	return int64(float64(v.Used) / float64(v.Size) * 100)
}
