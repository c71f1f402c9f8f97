package attribute

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// owned is a pod of namespace app with a controller.
func owned(kind, name string, labels map[string]string) *corev1.Pod {
	made := metav1.NewTime(time.Date(2026, 12, 1, 8, 30, 4, 0, time.UTC)) // minute 29935230
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "web-abc", Labels: labels, CreationTimestamp: made}}
	if kind != "" {
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "Other", Name: "other"}, {Kind: kind, Name: name, Controller: new(true)}}
	}
	return pod
}

func TestForWhichWorkloadAPodRuns(t *testing.T) {
	for sentence, row := range map[string]struct {
		pod  *corev1.Pod
		want Client
	}{
		"a Deployment's":                                {owned("ReplicaSet", "web-front-7d9f", map[string]string{hashOfDeployment: "7d9f"}), Client{"app", "Deployment", "web-front"}},
		"a Rollout's":                                   {owned("ReplicaSet", "web-7d9f", map[string]string{hashOfRollout: "7d9f"}), Client{"app", "Rollout", "web"}},
		"a ReplicaSet's without a Deployment":           {owned("ReplicaSet", "web-7d9f", nil), Client{"app", "ReplicaSet", "web-7d9f"}},
		"a ReplicaSet's that has a hash and no name":    {owned("ReplicaSet", "-7d9f", map[string]string{hashOfDeployment: "7d9f"}), Client{"app", "ReplicaSet", "-7d9f"}},
		"a ReplicaSet's with the hash of another":       {owned("ReplicaSet", "web-7d9f", map[string]string{hashOfDeployment: "1111"}), Client{"app", "ReplicaSet", "web-7d9f"}},
		"a StatefulSet's":                               {owned("StatefulSet", "queue", nil), Client{"app", "StatefulSet", "queue"}},
		"a DaemonSet's":                                 {owned("DaemonSet", "agent", nil), Client{"app", "DaemonSet", "agent"}},
		"a CronJob's, in time":                          {owned("Job", "report-29935230", nil), Client{"app", "CronJob", "report"}},
		"a CronJob's, days late":                        {owned("Job", "report-29930040", nil), Client{"app", "CronJob", "report"}},
		"a Job's":                                       {owned("Job", "migrate", nil), Client{"app", "Job", "migrate"}},
		"a Job's that is named after a date":            {owned("Job", "migrate-20261201", nil), Client{"app", "Job", "migrate-20261201"}},
		"a Job's that is named by a number alone":       {owned("Job", "-29935230", nil), Client{"app", "Job", "-29935230"}},
		"a kind's that nobody knows":                    {owned("Workflow", "etl", nil), Client{"app", "Workflow", "etl"}},
		"nobody's":                                      {owned("", "", nil), Client{"app", "Pod", "web-abc"}},
		"a static pod":                                  {owned("Node", "node-1", nil), Client{"app", "Pod", "web-abc"}},
		"an instance of a Database":                     {owned("Database", "orders", map[string]string{v1.LabelDatabase: "orders", v1.LabelKind: v1.KindInstance}), Client{"app", "Database", "orders"}},
		"a pod of a Deployment with a Database's label": {owned("ReplicaSet", "web-7d9f", map[string]string{v1.LabelDatabase: "orders", hashOfDeployment: "7d9f"}), Client{"app", "Deployment", "web"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			if diff := cmp.Diff(row.want, ClientOf(row.pod)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestWhatAnAddressSaysAlone(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1": KindLocal, "::1": KindLocal, "10.1.2.3": KindPrivate, "192.168.0.9": KindPrivate, "100.64.1.1": KindPrivate, "fd00::7": KindPrivate,
		"fe80::1": KindPrivate, "100.128.1.1": KindPublic, "203.0.113.5": KindPublic, "2001:db8::1": KindPublic,
	} {
		if got := ByAddress(netip.MustParseAddr(address)).Kind; got != want {
			t.Errorf("%s is %s, want %s", address, got, want)
		}
	}
	if got := ByAddress(netip.Addr{}).Kind; got != KindUnknown {
		t.Errorf("no address is %s", got)
	}
}
