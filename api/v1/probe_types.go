package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// ProbeName is the name of a cluster's only Probe.
	ProbeName = "cluster"
	// ProbeNamespace is where the probes of all nodes run. They mount directories of the node, which the operator's own namespace admits to
	// nobody.
	ProbeNamespace = "plimsoll-probe"
	// ProbeStatusPort is where a probe answers with its NodeStatus, by HTTP.
	ProbeStatusPort = 8082
	// ProbeStatusPath is what to ask for there.
	ProbeStatusPath = "/v1/status"
)

// ProbeMode says whether the databases of nodes are measured.
// +kubebuilder:validation:Enum=Measure;Off
type ProbeMode string

const (
	// ProbeMeasure runs a probe on each node.
	ProbeMeasure ProbeMode = "Measure"
	// ProbeOff runs none, and keeps what was asked for.
	ProbeOff ProbeMode = "Off"
)

// ProbePrivileges says what a probe may do on its node.
// +kubebuilder:validation:Enum=Capabilities;Privileged
type ProbePrivileges string

const (
	// ProbeCapabilities gives it the capabilities that it needs and no other.
	ProbeCapabilities ProbePrivileges = "Capabilities"
	// ProbePrivileged gives it all and every device: for nodes whose runtime or security module refuses the capabilities alone.
	ProbePrivileged ProbePrivileges = "Privileged"
)

// ProbeSpec is what a user asks for.
type ProbeSpec struct {
	// Mode Measure runs a probe on each node; Off runs none.
	// +optional
	// +kubebuilder:default=Measure
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Mode",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:Measure","urn:alm:descriptor:com.tectonic.ui:select:Off"}
	Mode ProbeMode `json:"mode,omitempty"`

	// Privileges of the probe on its node.
	// +optional
	// +kubebuilder:default=Capabilities
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Privileges",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	Privileges ProbePrivileges `json:"privileges,omitempty"`

	// Statements are what is kept of statements.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Statements"
	Statements ProbeStatements `json:"statements,omitzero"`

	// Clients are what is kept of those who connect.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Clients"
	Clients ProbeClients `json:"clients,omitzero"`

	// OTLP receives slow and failed statements, beside the lines of the probes' log.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="OTLP"
	OTLP *OTLPReceiver `json:"otlp,omitempty"`

	// NodeSelector chooses nodes by their labels; all that run Linux by default.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Node Selector",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	// +kubebuilder:validation:MaxProperties=32
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Tolerations of the probes. All taints are tolerated by default, because databases run on nodes with taints, too; an empty list
	// tolerates none.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Tolerations",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// PriorityClassName of the probes; that of the cluster by default.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Priority Class Name",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	// +kubebuilder:validation:MaxLength=253
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// Resources of each probe. The limit of memory holds the kernel's maps, too, which may take 72 MiB: it must be 192Mi or more, and is
	// 256Mi by default. No limit of CPU is set by default: a probe that is held up loses what it cannot read in time.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Resources",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:resourceRequirements"}
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`

	// ImagePullSecrets name Secrets in the namespace plimsoll-probe with credentials for the registry of the operator's image.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Image Pull Secrets",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:XValidation:rule="has(self.name) && size(self.name) > 0",message="name a Secret",fieldPath=".name"
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
}

// ProbeStatements bound what is kept of statements.
type ProbeStatements struct {
	// Series is how many statements of an instance have metrics of their own; the others are counted together as "other".
	// +optional
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=8192
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Series",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number"}
	Series int32 `json:"series,omitempty"`

	// Slow tells each statement one by one for whose answer a client waits as long as this, or longer; 0s tells none. A Database may say
	// otherwise in spec.observability.statements.
	// +optional
	// +kubebuilder:default="1s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]{1,5}(\.[0-9]{1,9})?(h|m|s|ms|us|µs|ns)){1,4}$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Slow",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:text"}
	Slow *metav1.Duration `json:"slow,omitempty"`

	// Failed tells each statement one by one that is answered with an error, a thousand a second of an instance at most. A Database may say
	// otherwise, too.
	// +optional
	// +kubebuilder:default=true
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Failed",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:booleanSwitch"}
	Failed *bool `json:"failed,omitempty"`

	// Lines writes these statements to the probes' standard output, a line of JSON each.
	// +optional
	// +kubebuilder:default=true
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Lines",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:booleanSwitch"}
	Lines *bool `json:"lines,omitempty"`
}

// ClientsBy says how clients are told apart.
// +kubebuilder:validation:Enum=Workload;AddressClass;Off
type ClientsBy string

const (
	// ClientsByWorkload tells the workload of each client's pod. For that each probe watches the pods of the whole cluster: three MiB of ten
	// thousand.
	ClientsByWorkload ClientsBy = "Workload"
	// ClientsByAddressClass tells local, private and public addresses, and watches no pods for that.
	ClientsByAddressClass ClientsBy = "AddressClass"
	// ClientsOff tells none apart.
	ClientsOff ClientsBy = "Off"
)

// ProbeClients bound what is kept of clients.
type ProbeClients struct {
	// By which clients are told apart.
	// +optional
	// +kubebuilder:default=Workload
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="By",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	By ClientsBy `json:"by,omitempty"`
}

// OTLPReceiver takes slow and failed statements as logs of OpenTelemetry, by HTTP.
type OTLPReceiver struct {
	// Endpoint is its base URL, as http://collector.observability:4318.
	// +kubebuilder:validation:MinLength=8
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^https?://[^\s@]+$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Endpoint",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:text"}
	Endpoint string `json:"endpoint"`

	// Headers to send along, as name=value pairs with commas between: the key of a Secret in the namespace plimsoll-probe.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Headers",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	Headers *corev1.SecretKeySelector `json:"headers,omitempty"`
}

// NodeState says how far the databases of a node are measured.
type NodeState string

const (
	// NodeMeasures : all connections of all its instances are seen, or there are none.
	NodeMeasures NodeState = "Measures"
	// NodePartly : some connections are not seen; the message says which and why.
	NodePartly NodeState = "Partly"
	// NodeWaits : the container or the server of an instance has not been found within half a minute, or none has been found yet.
	NodeWaits NodeState = "Waits"
	// NodeSilent : its probe does not answer; the message says why.
	NodeSilent NodeState = "Silent"
)

// NodeInstances counts the instances of a node by how far they are measured.
type NodeInstances struct {
	// Measured wholly.
	Measured int32 `json:"measured"`
	// Partly measured: connections through TLS are not seen.
	// +optional
	Partly int32 `json:"partly,omitempty"`
	// Unseen are not measured at all.
	// +optional
	Unseen int32 `json:"unseen,omitempty"`
	// Waiting for their container or their server to be found.
	// +optional
	Waiting int32 `json:"waiting,omitempty"`
}

// NodeStatus is what the probe of a node says of itself; the probe answers with it, too.
type NodeStatus struct {
	// Name of the node.
	Name string `json:"name"`

	// State in a word: Measures, Partly, Waits or Silent.
	State NodeState `json:"state"`

	// Hooks that are attached, of "syscalls" (statements of plain connections), "programs" (those through TLS) and "connections".
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	Hooks []string `json:"hooks,omitempty"`

	// Instances on the node.
	// +optional
	Instances NodeInstances `json:"instances,omitzero"`

	// Kernel of the node, as `uname -r` says.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Kernel string `json:"kernel,omitempty"`

	// Version of the probe.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Version string `json:"version,omitempty"`

	// Message says what is missing, and why.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// ProbeStatus is how things are.
type ProbeStatus struct {
	// ObservedGeneration is the generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Ready probes, of those that are wanted.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Ready",xDescriptors={"urn:alm:descriptor:text"}
	Ready string `json:"ready,omitempty"`

	// Nodes by what their probes say: those first that do not measure all, then by name; a hundred at most.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Nodes []NodeStatus `json:"nodes,omitempty"`

	// UnlistedNodes are beyond those hundred.
	// +optional
	UnlistedNodes int32 `json:"unlistedNodes,omitempty"`

	// Conditions: Ready, Reconciling and Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Conditions",xDescriptors={"urn:alm:descriptor:io.kubernetes.conditions"}
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Probe measures the databases of all nodes from their kernels. A cluster has one, named "cluster"; while there is none, nothing is measured.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,path=probes,singular=probe,categories=plimsoll
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'cluster'",message="a cluster has one Probe: name it cluster"
// +operator-sdk:csv:customresourcedefinitions:displayName="Probe",resources={{DaemonSet,v1,plimsoll-probe}}
type Probe struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	// +kubebuilder:default={}
	Spec ProbeSpec `json:"spec,omitzero"`
	// +optional
	Status ProbeStatus `json:"status,omitzero"`
}

// ProbeList is a list of Probes.
//
// +kubebuilder:object:root=true
type ProbeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Probe `json:"items"`
}
