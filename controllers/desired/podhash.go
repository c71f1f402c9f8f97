package desired

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// PodHash is the hash that a live pod was made from; empty if it has none.
func PodHash(pod *corev1.Pod) string { return pod.Annotations[v1.AnnotationPodSpecHash] }

// Outdated says whether a live pod was made from another spec than the one that the inputs ask for.
func Outdated(in Inputs, i Instance, live *corev1.Pod) bool {
	return PodHash(live) != PodHash(Pod(in, i))
}

// SpecHash is a hash of a desired spec. The agent's image does not count: a new version of the operator brings a new image and
// must restart nothing. A pod gets the new agent when it is made anew for another reason. It follows that a change of this
// package that renders another spec does restart every instance of every Database: the golden files hold the hash, so that
// nobody makes one without seeing it.
func SpecHash(spec corev1.PodSpec) string {
	counted := *spec.DeepCopy()
	for i := range counted.InitContainers {
		if counted.InitContainers[i].Name == AgentContainer {
			counted.InitContainers[i].Image = ""
		}
	}
	for i := range counted.Containers {
		if counted.Containers[i].Name == WitnessContainer {
			counted.Containers[i].Image = ""
		}
	}
	raw, _ := json.Marshal(counted) // a PodSpec holds nothing that JSON cannot express
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}
