package database

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/certificate"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/desired"
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

// rotates says that a change of the authority is under way, whose steps wait for what instances say that they use.
func rotates(m certificate.Material) bool {
	phase, _ := m.Phase()
	return phase != certificate.Settled
}

// credentials stops a new Database that lacks what it needs. One that runs goes on with what it has.
func (d *draft) credentials() bool {
	names := certificate.ServerLeaf(string(d.seen.Database.UID), d.seen.Database.Namespace, d.seen.Database.Name).DNSNames
	if wish := desired.IssuedCertificate(d.Inputs, names); wish != nil {
		d.Apply = append(d.Apply, wish)
	}
	problem := d.seen.Secrets.Problem
	d.issuing(problem)
	if problem == nil {
		d.Certificates = d.wantedCertificates()
		return true
	}
	if d.Leadership.Epoch == 0 {
		return false
	}
	if m := d.seen.Secrets.Material; len(m.Signer.Certificate) > 0 {
		d.Certificates = d.wantedCertificates()
		if _, name := foreignName(d.seen.Database); name != "" && d.Certificates.Foreign == nil {
			// The members' certificates go on being renewed; the server keeps the user's, of which a copy is at hand.
			d.Certificates.Foreign = &certificate.Foreign{Pair: m.Server, Trusted: m.ServerTrusted}
		}
	}
	return true
}

func (d *draft) wantedCertificates() *certificate.Wanted {
	db := d.seen.Database
	w := &certificate.Wanted{
		UID: string(db.UID), Namespace: db.Namespace, Database: db.Name, Instances: secretInstances(d.seen),
		Foreign: d.seen.Secrets.Foreign, Reported: map[string]string{},
	}
	for _, pods := range []map[string]*corev1.Pod{d.seen.Pods, d.seen.Witnesses} {
		for name := range pods {
			w.Reported[name] = "" // silent: a rotation waits for it, or it would be cut off
		}
	}
	for name, h := range d.seen.Heard {
		w.Reported[name] = h.Report.SecretsHash
	}
	return w
}
