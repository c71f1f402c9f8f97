package database

import (
	"fmt"
	"time"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/certificate"
)

// rotateRequest passes a request for new certificates on, and tells how far it is. The certificates' own plan does the work; once it
// has begun it goes on to its end whatever becomes of the request, since half a rotation is no state to stay in.
func (d *draft) rotateRequest() bool {
	r, goOn := d.open(kindRotate, d.seen.Database.Annotations[v1.AnnotationRotate])
	if !goOn {
		return true
	}
	m := d.seen.Secrets.Material
	begun := m.Rotation == r.ID
	switch {
	case r.Target != "":
		d.say(r, v1.RequestFailed, "a rotation has no target: it changes the certificates of all instances")
		return true
	case !begun && d.now.After(r.Expires):
		d.say(r, v1.RequestExpired, "it was not begun in time")
		return true
	case d.Certificates == nil:
		d.say(r, v1.RequestRunning, "waiting for what the condition Stalled names")
		d.LookAgain = soonest(d.LookAgain, r.Expires.Sub(d.now)+time.Second)
		return true
	}
	d.Certificates.Rotation = r.ID
	text, done := d.rotation(m, begun)
	if done {
		d.say(r, v1.RequestDone, text)
		return true
	}
	d.say(r, v1.RequestRunning, text)
	d.rotating = text
	return true
}

// rotation says how far it is.
func (d *draft) rotation(m certificate.Material, begun bool) (text string, done bool) {
	if !begun {
		return "making a new authority", false
	}
	behind := d.Certificates.Behind(m)
	wait := ""
	if len(behind) > 0 {
		wait = ": waiting for " + listed(behind)
	}
	switch phase, signs := m.Phase(); {
	case phase == certificate.Trusting && d.now.Before(signs):
		return fmt.Sprintf("1 of 3, the new authority is trusted beside the old one, and signs from %s on", signs.UTC().Format(time.RFC3339)), false
	case phase == certificate.Trusting:
		return "1 of 3, the new authority is trusted beside the old one, and signs once every instance trusts it" + wait, false
	case phase == certificate.Replacing:
		return "2 of 3, the new authority has issued every certificate anew, and the old one is trusted until every instance uses its new one" + wait, false
	case len(behind) > 0:
		return "3 of 3, the old authority is trusted no more" + wait, false
	}
	text = "a new authority issued every certificate, and the old one is trusted no more"
	if d.Certificates.Foreign != nil {
		text = "a new authority issued the members' certificates, and the old one is trusted no more; the server's is that of spec.tls, which was left alone"
	}
	return text, true
}
