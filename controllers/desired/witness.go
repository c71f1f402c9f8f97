package desired

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

// WitnessContainer is the name of a witness's only container.
const WitnessContainer = "witness"

const (
	volumeWitness = "witness"
	witnessValue  = "witness"
)

// Witness is the pod of a Database's third voter that holds no data. It keeps its promise on a volume of the pod's own, which outlives
// its container and not the pod: a pod that comes after has another name, and so another vote.
func Witness(in Inputs, name string) *corev1.Pod {
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: meta(in, name),
		Spec:       witnessSpec(in, name),
	}
	maps.Copy(pod.Labels, map[string]string{labelComponent: witnessValue, v1.LabelKind: v1.KindWitness})
	pod.Annotations = map[string]string{
		v1.AnnotationPodSpecHash: SpecHash(pod.Spec),
		// What it keeps is worth nothing once another witness has taken its place.
		"cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes": volumeWitness,
	}
	return pod
}

// WitnessSecret holds the certificate by which a witness is known.
func WitnessSecret(in Inputs, name string, data map[string][]byte) *corev1.Secret {
	s := opaque(in, MemberName(name), data)
	s.Type = corev1.SecretTypeTLS
	return s
}

func witnessSpec(in Inputs, name string) corev1.PodSpec {
	spec := memberSpec(in, name, engine.WitnessGrace)
	spec.Containers = []corev1.Container{witnessContainer(in, name)}
	spec.Volumes = []corev1.Volume{
		diskVolume(volumeWitness, "16Mi"), secretVolume(volumeMember, MemberName(name)), publicServer(in), tokenVolume(),
	}
	spec.Affinity = witnessAffinity(in)
	return spec
}

// witnessContainer runs the operator's own image: nothing of the engine's is needed.
func witnessContainer(in Inputs, name string) corev1.Container {
	few := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")}
	return corev1.Container{
		Name:            WitnessContainer,
		Image:           in.AgentImage,
		ImagePullPolicy: corev1.PullIfNotPresent,
		Command:         []string{agentPath, "witness"},
		Env:             identity(in, name),
		Ports: []corev1.ContainerPort{
			{Name: portAgent, ContainerPort: engine.AgentPort, Protocol: corev1.ProtocolTCP},
			{Name: portHealth, ContainerPort: engine.HealthPort, Protocol: corev1.ProtocolTCP},
		},
		Resources:                corev1.ResourceRequirements{Requests: few, Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}},
		SecurityContext:          containerSecurity(),
		StartupProbe:             startupProbe(),
		LivenessProbe:            livenessProbe(),
		ReadinessProbe:           readinessProbe(),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		VolumeMounts: []corev1.VolumeMount{
			{Name: volumeWitness, MountPath: engine.WitnessDir},
			{Name: volumeMember, MountPath: engine.MemberTLSDir, ReadOnly: true},
			{Name: volumeServer, MountPath: engine.ServerTLSDir, ReadOnly: true},
			{Name: volumeToken, MountPath: tokenDir, ReadOnly: true},
		},
	}
}

// publicServer is what is public of the server's certificate: a witness serves no client, but says as instances do what it has seen.
func publicServer(in Inputs) corev1.Volume {
	v := secretVolume(volumeServer, ServerName(in.Database.Name))
	v.Secret.Items = []corev1.KeyToPath{{Key: "tls.crt", Path: "tls.crt"}, {Key: "ca.crt", Path: "ca.crt"}}
	return v
}

// witnessAffinity keeps it off the nodes of the instances, without exception: a node that took both would take the majority.
func witnessAffinity(in Inputs) *corev1.Affinity {
	a := &corev1.Affinity{}
	if own := in.Database.Spec.Scheduling.Affinity; own != nil {
		a.NodeAffinity = own.NodeAffinity.DeepCopy()
	}
	a.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
		LabelSelector: &metav1.LabelSelector{MatchLabels: InstanceSelector(in.Database.Name)}, TopologyKey: corev1.LabelHostname,
	}}}
	return a
}
