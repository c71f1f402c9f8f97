package desired

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

const (
	// DatabaseContainer is the name of the container that runs the agent and the server.
	DatabaseContainer = "database"
	// AgentContainer is the name of the init container that installs the agent.
	AgentContainer = "agent"

	// agentPath is where the operator's image has the agent.
	agentPath = "/plimsoll-agent"
)

// Pod of an instance. Pods are made by ssa.Create and never applied: their spec cannot change. The role's label is applied
// beside by PodRole. The same inputs give the same bytes, and Secrets, roles and parameters are no part of it.
func Pod(in Inputs, i Instance) *corev1.Pod {
	name := InstanceName(in.Database.Name, i.Ordinal)
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: instanceMeta(in, i, name),
		Spec:       podSpec(in, name),
	}
	pod.Labels[v1.LabelKind] = v1.KindInstance
	pod.Annotations = map[string]string{
		v1.AnnotationPodSpecHash:                  SpecHash(pod.Spec),
		"kubectl.kubernetes.io/default-container": DatabaseContainer,
		// Nothing of worth is lost with these, so they need not keep a node alive.
		"cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes": strings.Join(scratchVolumes(), ","),
	}
	return pod
}

// PodRole is the part of a live pod that the manager keeps right: its labels, with the role's where it is known, and what its node's probe is to
// tell of it. Hand it to ssa.Apply.
func PodRole(in Inputs, i Instance, role v1.Role) *corev1.Pod {
	m := instanceMeta(in, i, InstanceName(in.Database.Name, i.Ordinal))
	m.Labels[v1.LabelKind] = v1.KindInstance
	if role == v1.RolePrimary || role == v1.RoleReplica {
		m.Labels[v1.LabelRole] = string(role)
	}
	if wanted := in.Database.Spec.Observability.Statements; wanted != (v1.StatementsSpec{}) {
		raw, _ := json.Marshal(wanted) // it holds nothing that JSON cannot express
		m.Annotations = map[string]string{v1.AnnotationStatements: string(raw)}
	}
	return &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: m}
}

func podSpec(in Inputs, name string) corev1.PodSpec {
	spec := memberSpec(in, name, engine.TerminationGrace)
	spec.InitContainers = []corev1.Container{agentContainer(in)}
	spec.Containers = []corev1.Container{databaseContainer(in, name)}
	spec.Volumes = volumes(in, name)
	spec.Affinity = affinity(in)
	spec.TopologySpreadConstraints = zoneSpread(in)
	return spec
}

// memberSpec is what the pods of instances and witnesses have alike.
func memberSpec(in Inputs, name string, grace time.Duration) corev1.PodSpec {
	spec := in.Database.Spec
	return corev1.PodSpec{
		Hostname:                      name,
		Subdomain:                     MembersServiceName(in.Database.Name),
		ServiceAccountName:            AgentName(in.Database.Name),
		AutomountServiceAccountToken:  new(false),
		EnableServiceLinks:            new(false),
		RestartPolicy:                 corev1.RestartPolicyAlways,
		TerminationGracePeriodSeconds: new(int64(grace.Seconds())),
		ImagePullSecrets:              slices.Clone(spec.ImagePullSecrets),
		SecurityContext:               podSecurity(in),
		NodeSelector:                  maps.Clone(spec.Scheduling.NodeSelector),
		// The API server adds 300 s of patience with a lost node, and that is right here: leadership has moved long before, a
		// pod of a silent node is never replaced under its volume, and a node that was away for a minute should find its
		// instance running, not marked for deletion.
		Tolerations:       slices.Clone(spec.Scheduling.Tolerations),
		PriorityClassName: spec.Scheduling.PriorityClassName,
	}
}

func agentContainer(in Inputs) corev1.Container {
	return corev1.Container{
		Name:            AgentContainer,
		Image:           in.AgentImage,
		ImagePullPolicy: corev1.PullIfNotPresent,
		Command:         []string{agentPath, "install"},
		// The pod asks for the larger of its init containers and its containers, so this costs nothing, and a pod whose server
		// has equal requests and limits stays Guaranteed.
		Resources:                resources(in),
		SecurityContext:          containerSecurity(),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		VolumeMounts: []corev1.VolumeMount{
			{Name: volumeBin, MountPath: engine.BinDir},
			{Name: volumeEtc, MountPath: engine.EtcDir},
		},
	}
}

func databaseContainer(in Inputs, name string) corev1.Container {
	return corev1.Container{
		Name:            DatabaseContainer,
		Image:           in.Effective.Image,
		ImagePullPolicy: corev1.PullIfNotPresent,
		Command:         []string{engine.BinDir + agentPath, "run"},
		Env:             append(identity(in, name), in.Parts.Env...),
		Ports: []corev1.ContainerPort{
			{Name: portName(in), ContainerPort: in.Parts.Port.ContainerPort, Protocol: corev1.ProtocolTCP},
			{Name: portAgent, ContainerPort: engine.AgentPort, Protocol: corev1.ProtocolTCP},
			{Name: portHealth, ContainerPort: engine.HealthPort, Protocol: corev1.ProtocolTCP},
		},
		Resources:                resources(in),
		SecurityContext:          containerSecurity(),
		StartupProbe:             startupProbe(),
		LivenessProbe:            livenessProbe(),
		ReadinessProbe:           readinessProbe(),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		VolumeMounts:             mounts(in),
	}
}

// identity says whom the agent serves.
func identity(in Inputs, name string) []corev1.EnvVar {
	return []corev1.EnvVar{
		{Name: engine.EnvNamespace, Value: in.Database.Namespace},
		{Name: engine.EnvDatabase, Value: in.Database.Name},
		{Name: engine.EnvUID, Value: string(in.Database.UID)},
		{Name: engine.EnvInstance, Value: name},
		{Name: engine.EnvEngine, Value: string(in.Database.Spec.Engine)},
		{Name: engine.EnvAddress, ValueFrom: fieldOf("status.podIP")},
		{Name: engine.EnvNode, ValueFrom: fieldOf("spec.nodeName")},
	}
}

func fieldOf(path string) *corev1.EnvVarSource {
	return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}
}

// resources of both containers. Claims of devices need an entry in the pod that the spec has no place for.
func resources(in Inputs) corev1.ResourceRequirements {
	r := in.Database.Spec.Resources.DeepCopy()
	r.Claims = nil
	return *r
}
