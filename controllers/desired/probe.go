package desired

import (
	"cmp"
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// ProbeInputs are all that the objects of a Probe depend on.
type ProbeInputs struct {
	// Probe with its UID. It is read only.
	Probe *v1.Probe
	// Image is the operator's own.
	Image string
	// OperatorNamespace is where the manager asks from.
	OperatorNamespace string
}

const (
	// managerName is that of the manager's Deployment, as config/manager and the bundle have it.
	managerName = "plimsoll-manager"
	// ProbeName is that of the objects of a Probe, of their namespace, too.
	ProbeName  = "plimsoll-probe"
	probeValue = "probe"

	portStatus, portMetrics       = "status", "metrics"
	probeMetricsPort        int32 = 8443
	probeHealthPort         int32 = 8081

	volumeCgroup, volumeProc, volumeTracing = "cgroup", "proc", "tracing"
	hostCgroup, hostProc                    = "/host/cgroup", "/host/proc"
	tracingDir                              = "/sys/kernel/tracing"

	// probeMaps is what the kernel's maps may take when all are full.
	probeMaps = 72 << 20
)

// ProbeMemoryLeast bounds the limit of a probe's memory from below, in bytes: what its maps leave of less is too little for it to run in.
const ProbeMemoryLeast = 192 << 20

// ProbeSelector matches the pods of the probes.
func ProbeSelector() map[string]string {
	return map[string]string{labelName: operatorValue, labelComponent: probeValue}
}

func probeLabels() map[string]string {
	l := ProbeSelector()
	l[labelManagedBy], l[labelPartOf] = operatorValue, operatorValue
	return l
}

func probeMeta(in ProbeInputs, namespace string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: ProbeName, Namespace: namespace, Labels: probeLabels(),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(in.Probe, v1.GroupVersion.WithKind("Probe"))},
	}
}

// ProbeNamespace admits what the probes ask for, and nobody else runs there.
func ProbeNamespace(in ProbeInputs) *corev1.Namespace {
	ns := &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: probeMeta(in, ""),
	}
	maps.Copy(ns.Labels, map[string]string{
		"pod-security.kubernetes.io/enforce": "privileged", "pod-security.kubernetes.io/enforce-version": "latest",
	})
	return ns
}

// ProbeServiceAccount is whom the ClusterRole plimsoll-probe is bound to, by config/rbac.
func ProbeServiceAccount(in ProbeInputs) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: probeMeta(in, v1.ProbeNamespace),
	}
}

// ProbePolicy says who may call the probes: monitoring their metrics, over TLS and with a token, and the manager their status. The kubelet's
// calls come from the node and pass any policy.
func ProbePolicy(in ProbeInputs) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
		ObjectMeta: probeMeta(in, v1.ProbeNamespace),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: ProbeSelector()},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{
				{Ports: policyPort(probeMetricsPort)},
				{Ports: policyPort(v1.ProbeStatusPort), From: []networkingv1.NetworkPolicyPeer{manager(in.OperatorNamespace)}},
			},
		},
	}
}

// ProbeDaemonSet runs a probe on each node.
func ProbeDaemonSet(in ProbeInputs) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"},
		ObjectMeta: probeMeta(in, v1.ProbeNamespace),
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: ProbeSelector()},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{
				Type:          appsv1.RollingUpdateDaemonSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: new(intstr.FromString("10%"))},
			},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: probeLabels()}, Spec: probeSpec(in)},
		},
	}
}

func probeSpec(in ProbeInputs) corev1.PodSpec {
	spec := in.Probe.Spec
	nodes := map[string]string{corev1.LabelOSStable: "linux"}
	maps.Copy(nodes, spec.NodeSelector)
	tolerations := spec.Tolerations
	if tolerations == nil {
		tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
	return corev1.PodSpec{
		ServiceAccountName:            ProbeName,
		NodeSelector:                  nodes,
		Tolerations:                   tolerations,
		PriorityClassName:             spec.PriorityClassName,
		ImagePullSecrets:              spec.ImagePullSecrets,
		TerminationGracePeriodSeconds: new(int64(30)),
		SecurityContext:               &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers:                    []corev1.Container{probeContainer(in)},
		Volumes: []corev1.Volume{
			// Which cgroup is whose.
			nodeVolume(volumeCgroup, "/sys/fs/cgroup"),
			// The processes of the node, without being in their namespace (hostPID): they can be looked at, and not signalled.
			nodeVolume(volumeProc, "/proc"),
			// The numbers of the tracepoints of system calls.
			nodeVolume(volumeTracing, tracingDir),
		},
	}
}

func nodeVolume(name, path string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: path, Type: new(corev1.HostPathDirectory)},
	}}
}

func probeContainer(in ProbeInputs) corev1.Container {
	resources := probeResources(in.Probe.Spec.Resources)
	get := func(path string, probe corev1.Probe) *corev1.Probe {
		probe.ProbeHandler = corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString(portHealth)}}
		return &probe
	}
	return corev1.Container{
		Name: probeValue, Image: in.Image, ImagePullPolicy: corev1.PullIfNotPresent,
		Args: probeFlags(in),
		Env:  probeEnv(in.Probe.Spec, heap(resources.Limits[corev1.ResourceMemory])),
		Ports: []corev1.ContainerPort{
			{Name: portMetrics, ContainerPort: probeMetricsPort, Protocol: corev1.ProtocolTCP},
			{Name: portHealth, ContainerPort: probeHealthPort, Protocol: corev1.ProtocolTCP},
			{Name: portStatus, ContainerPort: v1.ProbeStatusPort, Protocol: corev1.ProtocolTCP},
		},
		StartupProbe:             get("/healthz", corev1.Probe{PeriodSeconds: 2, FailureThreshold: 60}),
		LivenessProbe:            get("/healthz", corev1.Probe{PeriodSeconds: 20, TimeoutSeconds: 5, FailureThreshold: 3}),
		ReadinessProbe:           get("/readyz", corev1.Probe{PeriodSeconds: 5, TimeoutSeconds: 3}),
		Resources:                resources,
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		SecurityContext:          probeSecurity(in.Probe.Spec.Privileges),
		VolumeMounts: []corev1.VolumeMount{
			{Name: volumeCgroup, MountPath: hostCgroup, ReadOnly: true},
			{Name: volumeProc, MountPath: hostProc, ReadOnly: true},
			{Name: volumeTracing, MountPath: tracingDir, ReadOnly: true},
		},
	}
}

// probeFlags say what is asked for, where that is not a flag's own default.
func probeFlags(in ProbeInputs) []string {
	spec := in.Probe.Spec
	flags := []string{
		"probe", "--cgroups=" + hostCgroup, "--proc=" + hostProc, fmt.Sprintf("--status-bind-address=:%d", v1.ProbeStatusPort),
		"--operator=" + in.OperatorNamespace + "/" + managerName,
		fmt.Sprintf("--statements=%d", cmp.Or(spec.Statements.Series, 100)),
	}
	if s := spec.Statements; s.Slow != nil {
		flags = append(flags, "--slow-statements="+s.Slow.Duration.String())
	}
	if s := spec.Statements; s.Failed != nil {
		flags = append(flags, fmt.Sprintf("--failed-statements=%t", *s.Failed))
	}
	if s := spec.Statements; s.Lines != nil {
		flags = append(flags, fmt.Sprintf("--statement-lines=%t", *s.Lines))
	}
	switch spec.Clients.By {
	case v1.ClientsByWorkload:
		flags = append(flags, "--clients=workload")
	case v1.ClientsByAddressClass:
		flags = append(flags, "--clients=address-class")
	case v1.ClientsOff:
		flags = append(flags, "--clients=off")
	}
	if spec.OTLP != nil {
		flags = append(flags, "--otlp-endpoint="+spec.OTLP.Endpoint)
	}
	return flags
}

func probeEnv(spec v1.ProbeSpec, heap int64) []corev1.EnvVar {
	env := []corev1.EnvVar{
		{Name: "NODE_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}},
		{Name: "GOMEMLIMIT", Value: fmt.Sprint(heap)},
	}
	if spec.OTLP != nil && spec.OTLP.Headers != nil {
		env = append(env, corev1.EnvVar{Name: "OTEL_EXPORTER_OTLP_HEADERS", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: spec.OTLP.Headers.DeepCopy()}})
	}
	return env
}

// heap is what Go may use of a limit: nine tenths of what the kernel's maps leave, because what is not the heap needs room, too.
func heap(limit resource.Quantity) int64 { return (limit.Value() - probeMaps) / 10 * 9 }

// probeResources are those that are asked for, and good ones where none are.
func probeResources(asked corev1.ResourceRequirements) corev1.ResourceRequirements {
	out := *asked.DeepCopy()
	fill := func(list *corev1.ResourceList, name corev1.ResourceName, value string) {
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		if _, set := (*list)[name]; !set {
			(*list)[name] = resource.MustParse(value)
		}
	}
	fill(&out.Limits, corev1.ResourceMemory, "256Mi")
	fill(&out.Requests, corev1.ResourceMemory, "64Mi")
	if _, limited := out.Limits[corev1.ResourceCPU]; !limited {
		fill(&out.Requests, corev1.ResourceCPU, "20m")
	}
	return out
}

func probeSecurity(p v1.ProbePrivileges) *corev1.SecurityContext {
	s := &corev1.SecurityContext{
		ReadOnlyRootFilesystem: new(true),
		RunAsUser:              new(int64(0)), // tracefs and the cgroups belong to root
	}
	if p == v1.ProbePrivileged {
		s.Privileged = new(true)
		return s
	}
	s.AllowPrivilegeEscalation = new(false)
	s.Capabilities = &corev1.Capabilities{
		Drop: []corev1.Capability{"ALL"},
		Add: []corev1.Capability{
			"BPF",        // load programs, make maps
			"PERFMON",    // attach them to tracepoints, and let them read what those are given
			"SYS_ADMIN",  // attach them to the functions of servers, which the kernel wants it for: without it nothing of TLS is seen
			"SYS_PTRACE", // find the program of a process of another container, by /proc/PID/exe
		},
	}
	return s
}
