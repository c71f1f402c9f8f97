package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// DatabaseSpec is what a user asks for. It has the fields of v1, with the same rules: a request is checked against the schema of its
// own version. Nothing of Plimsoll's ever writes it, but for region on creation.
//
// +kubebuilder:validation:XValidation:rule="!has(self.replicas) || !has(self.maxReplicas) || self.replicas <= self.maxReplicas",messageExpression="'more than maxReplicas, which is %d; lower replicas or raise maxReplicas'.format([self.maxReplicas])",fieldPath=".replicas"
// +kubebuilder:validation:XValidation:rule="self.engine == 'postgres' || !has(self.postgres)",message="only allowed with engine postgres; remove it",fieldPath=".postgres"
type DatabaseSpec struct {
	// Engine is the database to run. It cannot change.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Engine",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:postgres"}
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",messageExpression="'the engine cannot change from ' + oldSelf + ' to ' + self + '; create another Database and move the data'"
	Engine v1.EngineName `json:"engine"`

	// Version of the engine, as major or major.minor ("17", "15.18"). It may be raised within its major number; until the first instance
	// has started it may be any. Once it names a minor number it must go on naming one: without, an older minor could come back.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Version",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:text"}
	// +kubebuilder:validation:Pattern=`^(0|[1-9][0-9]{0,2})(\.(0|[1-9][0-9]{0,2})){0,2}$`
	// +kubebuilder:validation:MaxLength=11
	Version string `json:"version"`

	// Image replaces the image that the operator derives from engine and version. It must hold the server of that version.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Image",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:text"}
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[^\s]*$`
	Image string `json:"image,omitempty"`

	// ImagePullSecrets name Secrets in the Database's namespace with credentials for the registry of the image.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Image Pull Secrets",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:XValidation:rule="has(self.name) && size(self.name) > 0",message="name a Secret",fieldPath=".name"
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// RunAsUser is the numeric user that the server runs as. By default it follows the image's engine (999 for the official
	// PostgreSQL image); on OpenShift it is left to the platform. It cannot change once the first instance has started, because
	// the files on the volumes belong to that user.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Run As User",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	RunAsUser *int64 `json:"runAsUser,omitempty"`

	// Replicas is how many instances run: one primary and the rest replicas. An odd number makes the best majorities.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Replicas",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:podCount"}
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=15
	Replicas *int32 `json:"replicas,omitempty"`

	// MaxReplicas is the highest number that Replicas may be set to, by a person or an autoscaler.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Max Replicas",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number"}
	// +kubebuilder:default=9
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=15
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`

	// Storage is the volumes of each instance.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Storage"
	Storage v1.StorageSpec `json:"storage"`

	// Resources of the database container of each instance.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Resources",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:resourceRequirements"}
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`

	// Parameters of the server's configuration by name, as the engine spells them in lower case, with values of at most 1024
	// characters on one line. What Plimsoll manages itself is refused with the reason.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Parameters"
	// +kubebuilder:validation:MaxProperties=256
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 63 && k.matches('^[a-z_][a-z0-9_.]*$'))",message="the name of a parameter is at most 63 lower-case letters, digits, underscores and dots, and begins with a letter or an underscore; correct the name"
	Parameters v1.Parameters `json:"parameters,omitempty"`

	// Postgres holds what only PostgreSQL knows. Only with engine postgres.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="PostgreSQL"
	Postgres *v1.PostgresSpec `json:"postgres,omitempty"`

	// Replication between the instances.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Replication"
	Replication v1.ReplicationSpec `json:"replication,omitzero"`

	// TLS of client connections. By default Plimsoll keeps its own certificate authority.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="TLS"
	TLS v1.TLSSpec `json:"tls,omitzero"`

	// Bootstrap says how a new database is made. It is read when the first instance starts, and cannot change afterwards.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Bootstrap"
	// +kubebuilder:default={}
	Bootstrap v1.BootstrapSpec `json:"bootstrap,omitzero"`

	// Region that the Database lives in, as a label for people and dashboards. The namespace's label plimsoll.dev/region is
	// taken on creation if it is empty.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Region",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:text"}
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`
	Region string `json:"region,omitempty"`

	// Scheduling of the instances over nodes.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Scheduling",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	// +kubebuilder:default={}
	Scheduling v1.SchedulingSpec `json:"scheduling,omitzero"`

	// Observability says what the probes of the nodes tell of the Database.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Observability",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	Observability v1.ObservabilitySpec `json:"observability,omitzero"`

	// Maintenance takes the Database or instances out of service on purpose.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Maintenance",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	Maintenance v1.MaintenanceSpec `json:"maintenance,omitzero"`

	// DeletionPolicy of the volumes when the Database is deleted; Delete also deletes those of an instance that is scaled away, at once.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Deletion Policy",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:Retain","urn:alm:descriptor:com.tectonic.ui:select:Delete"}
	// +kubebuilder:default=Retain
	DeletionPolicy v1.DeletionPolicy `json:"deletionPolicy,omitempty"`
}

// DatabaseStatus is what is.
type DatabaseStatus struct {
	// ObservedGeneration is the generation of the spec that this status answers.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Phase is the state in one word.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Phase",xDescriptors={"urn:alm:descriptor:io.kubernetes.phase"}
	Phase v1.Phase `json:"phase,omitempty"`

	// Conditions say how things are: Ready, Reconciling, Stalled, Durable.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Conditions",xDescriptors={"urn:alm:descriptor:io.kubernetes.conditions"}
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Ready is how many instances are ready of how many are wanted, as "2/3".
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Ready",xDescriptors={"urn:alm:descriptor:text"}
	Ready string `json:"ready,omitempty"`

	// Replicas is how many instances there are.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`

	// ReadyReplicas is how many instances are ready.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`

	// Selector matches the instances' pods, for the scale subresource.
	// +optional
	Selector string `json:"selector,omitempty"`

	// Version of the server that the primary runs.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Version",xDescriptors={"urn:alm:descriptor:text"}
	// +kubebuilder:validation:MaxLength=64
	Version string `json:"version,omitempty"`

	// Leader is the instance that leads by the Lease.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Leader",xDescriptors={"urn:alm:descriptor:text"}
	Leader string `json:"leader,omitempty"`

	// Epoch is the number of the leadership; it only grows.
	// +optional
	Epoch int64 `json:"epoch,omitempty"`

	// Voters are the members whose majority decides who leads, the witness among them.
	// +optional
	// +listType=set
	Voters []string `json:"voters,omitempty"`

	// Witness of two instances; absent where there is none.
	// +optional
	Witness *v1.WitnessStatus `json:"witness,omitempty"`

	// Instances, by name.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Instances"
	// +listType=map
	// +listMapKey=name
	Instances []v1.InstanceStatus `json:"instances,omitempty"`

	// Certificates and when they end.
	// +optional
	// +listType=map
	// +listMapKey=name
	Certificates []v1.CertificateStatus `json:"certificates,omitempty"`

	// Effective is what holds where the spec leaves a choice.
	// +optional
	Effective *v1.EffectiveSpec `json:"effective,omitempty"`

	// Requests are answers to the newest requests for a switchover or restart, newest first, at most ten.
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +listMapKey=id
	Requests []v1.RequestStatus `json:"requests,omitempty"`

	// HandOvers are the newest changes of the leader, newest first, at most ten.
	// +optional
	// +listType=map
	// +listMapKey=epoch
	HandOvers []v1.HandOver `json:"handOvers,omitempty"`
}

// Database is one replicated database: a primary that takes writes and replicas that follow it.
//
// +kubebuilder:object:root=true
// +kubebuilder:deprecatedversion:warning="plimsoll.dev/v1beta1 Database is deprecated; use plimsoll.dev/v1, which has the same fields"
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:path=databases,singular=database,shortName=pldb,categories=all;plimsoll
// +kubebuilder:printcolumn:name="Engine",type=string,JSONPath=`.spec.engine`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name="Leader",type=string,JSONPath=`.status.leader`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$')",messageExpression="'the name ' + self.metadata.name + ' must have at most 40 characters, begin with a letter, end with a letter or digit and hold only lower-case letters, digits and dashes, because Pods and Services are named after it; choose another'"
// +kubebuilder:validation:XValidation:rule="self.spec.version == oldSelf.spec.version || !has(oldSelf.status) || !has(oldSelf.status.version) || !oldSelf.status.version.matches('^[0-9]{1,3}[.][0-9]{1,3}$') || size(self.spec.version.split('.')) < 2 || int(self.spec.version.split('.')[0]) != int(oldSelf.status.version.split('.')[0]) || int(self.spec.version.split('.')[1]) >= int(oldSelf.status.version.split('.')[1])",messageExpression="'the version cannot be set to ' + self.spec.version + ' while ' + oldSelf.status.version + ' runs; name ' + oldSelf.status.version + ' or a later one'",fieldPath=".spec.version"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || (!has(oldSelf.status.version) || size(oldSelf.status.version) == 0) && (!has(oldSelf.status.epoch) || oldSelf.status.epoch == 0) || int(self.spec.version.split('.')[0]) == int(oldSelf.spec.version.split('.')[0]) || has(oldSelf.status.version) && oldSelf.status.version.matches('^[0-9]{1,3}[.]') && int(self.spec.version.split('.')[0]) == int(oldSelf.status.version.split('.')[0])",messageExpression="'the major number cannot change from ' + oldSelf.spec.version + ' to ' + self.spec.version + '; create another Database and move the data'",fieldPath=".spec.version"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || (!has(oldSelf.status.version) || size(oldSelf.status.version) == 0) && (!has(oldSelf.status.epoch) || oldSelf.status.epoch == 0) || int(self.spec.version.split('.')[0]) != int(oldSelf.spec.version.split('.')[0]) || size(oldSelf.spec.version.split('.')) < 2 || (size(self.spec.version.split('.')) > 1 && (int(self.spec.version.split('.')[1]) > int(oldSelf.spec.version.split('.')[1]) || (int(self.spec.version.split('.')[1]) == int(oldSelf.spec.version.split('.')[1]) && (size(oldSelf.spec.version.split('.')) < 3 || (size(self.spec.version.split('.')) > 2 && int(self.spec.version.split('.')[2]) >= int(oldSelf.spec.version.split('.')[2]))))))",messageExpression="'the version cannot be lowered from ' + oldSelf.spec.version + ' to ' + self.spec.version + '; name ' + oldSelf.spec.version + ' or a later one of the same major number'",fieldPath=".spec.version"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.epoch) || oldSelf.status.epoch == 0 || (has(self.spec.bootstrap) == has(oldSelf.spec.bootstrap) && (!has(self.spec.bootstrap) || self.spec.bootstrap == oldSelf.spec.bootstrap))",message="bootstrap was read when the first instance started and cannot change any more; put it back as it was",fieldPath=".spec.bootstrap"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.epoch) || oldSelf.status.epoch == 0 || (has(self.spec.runAsUser) == has(oldSelf.spec.runAsUser) && (!has(self.spec.runAsUser) || self.spec.runAsUser == oldSelf.spec.runAsUser))",message="runAsUser cannot change any more, because the files on the volumes belong to that user; put it back as it was",fieldPath=".spec.runAsUser"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.maintenance) || !has(self.spec.maintenance.fenced) || self.spec.maintenance.fenced.all(f, f == '*' || f.startsWith(self.metadata.name + '-'))",message="an instance is named after its Database, as orders-1 of Database orders; correct the name or remove it",fieldPath=".spec.maintenance.fenced"
// +operator-sdk:csv:customresourcedefinitions:displayName="Database",resources={{Pod,v1,""},{PersistentVolumeClaim,v1,""},{Service,v1,""},{Secret,v1,""},{Lease,coordination.k8s.io/v1,""},{EndpointSlice,discovery.k8s.io/v1,""},{PodDisruptionBudget,policy/v1,""},{NetworkPolicy,networking.k8s.io/v1,""}}
type Database struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec is what the user asks for.
	Spec DatabaseSpec `json:"spec"`

	// Status is what is.
	// +optional
	Status DatabaseStatus `json:"status,omitzero"`
}

// DatabaseList is a list of Databases.
//
// +kubebuilder:object:root=true
type DatabaseList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Database `json:"items"`
}
