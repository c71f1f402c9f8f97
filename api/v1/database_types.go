package v1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EngineName names a database engine.
// +kubebuilder:validation:Enum=postgres
type EngineName string

// EnginePostgres is PostgreSQL.
const EnginePostgres EngineName = "postgres"

// SynchronousMode says what a commit waits for.
// +kubebuilder:validation:Enum=required;preferred;none
type SynchronousMode string

const (
	// SynchronousRequired acknowledges a commit only once a majority of the data-bearing members holds it durably; without a
	// majority, writes wait. Nothing acknowledged is lost when one member is.
	SynchronousRequired SynchronousMode = "required"
	// SynchronousPreferred waits for as many replicas as required does while as many follow. While fewer do, the primary first has the
	// Lease say that it alone holds everything, and then goes on without them: no failover loses what was acknowledged, because nobody
	// else may lead until enough replicas hold all again. Only the loss of the primary's own volume meanwhile does.
	SynchronousPreferred SynchronousMode = "preferred"
	// SynchronousNone never waits for a replica: the newest acknowledged writes can be lost with the primary.
	SynchronousNone SynchronousMode = "none"
)

// WitnessMode says whether a Database of two instances has a witness.
// +kubebuilder:validation:Enum=auto;none
type WitnessMode string

const (
	// WitnessAuto runs one beside two instances, on a node of its own.
	WitnessAuto WitnessMode = "auto"
	// WitnessNone runs none: the loss of either of two instances stops writes.
	WitnessNone WitnessMode = "none"
)

// DeletionPolicy says what happens to the volumes of a Database that is deleted.
// +kubebuilder:validation:Enum=Retain;Delete
type DeletionPolicy string

const (
	// DeletionRetain keeps the volumes; a person deletes them.
	DeletionRetain DeletionPolicy = "Retain"
	// DeletionDelete deletes the volumes with the Database.
	DeletionDelete DeletionPolicy = "Delete"
)

// DatabaseSpec is what a user asks for. Nothing of Plimsoll's ever writes it, but for region on creation.
//
// +kubebuilder:validation:XValidation:rule="!has(self.replicas) || !has(self.maxReplicas) || self.replicas <= self.maxReplicas",messageExpression="'more than maxReplicas, which is %d; lower replicas or raise maxReplicas'.format([self.maxReplicas])",fieldPath=".replicas"
// +kubebuilder:validation:XValidation:rule="self.engine == 'postgres' || !has(self.postgres)",message="only allowed with engine postgres; remove it",fieldPath=".postgres"
type DatabaseSpec struct {
	// Engine is the database to run. It cannot change.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Engine",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:postgres"}
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",messageExpression="'the engine cannot change from ' + oldSelf + ' to ' + self + '; create another Database and move the data'"
	Engine EngineName `json:"engine"`

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
	Storage StorageSpec `json:"storage"`

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
	Parameters Parameters `json:"parameters,omitempty"`

	// Postgres holds what only PostgreSQL knows. Only with engine postgres.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="PostgreSQL"
	Postgres *PostgresSpec `json:"postgres,omitempty"`

	// Replication between the instances.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Replication"
	Replication ReplicationSpec `json:"replication,omitzero"`

	// TLS of client connections. By default Plimsoll keeps its own certificate authority.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="TLS"
	TLS TLSSpec `json:"tls,omitzero"`

	// Bootstrap says how a new database is made. It is read when the first instance starts, and cannot change afterwards.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Bootstrap"
	// +kubebuilder:default={}
	Bootstrap BootstrapSpec `json:"bootstrap,omitzero"`

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
	Scheduling SchedulingSpec `json:"scheduling,omitzero"`

	// Observability says what the probes of the nodes tell of the Database.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Observability",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	Observability ObservabilitySpec `json:"observability,omitzero"`

	// Maintenance takes the Database or instances out of service on purpose.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Maintenance",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced"}
	Maintenance MaintenanceSpec `json:"maintenance,omitzero"`

	// DeletionPolicy of the volumes when the Database is deleted; Delete also deletes those of an instance that is scaled away, at once.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Deletion Policy",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:Retain","urn:alm:descriptor:com.tectonic.ui:select:Delete"}
	// +kubebuilder:default=Retain
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
}

// StorageSpec describes the volumes of one instance.
//
// +kubebuilder:validation:XValidation:rule="has(self.class) == has(oldSelf.class) && (!has(self.class) || self.class == oldSelf.class)",message="the storage class cannot change; put it back, or create another Database and move the data",fieldPath=".class"
// +kubebuilder:validation:XValidation:rule="has(self.wal) == has(oldSelf.wal)",message="a volume for the write-ahead log can be chosen only on creation; put the field back as it was, or create another Database and move the data",fieldPath=".wal"
// +kubebuilder:validation:XValidation:rule="!has(self.growth) || quantity(string(self.growth.maxSize)).compareTo(quantity(string(self.size))) >= 0",messageExpression="'growth.maxSize ' + string(self.growth.maxSize) + ' is below size ' + string(self.size) + '; raise it'",fieldPath=".growth.maxSize"
type StorageSpec struct {
	// Size of the data volume. It may grow, never shrink.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).isGreaterThan(quantity('0'))",message="must be a size above zero, as 10Gi"
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity(string(oldSelf))) >= 0",messageExpression="'a volume cannot shrink from ' + string(oldSelf) + ' to ' + string(self) + '; keep ' + string(oldSelf) + ' or more'"
	Size resource.Quantity `json:"size"`

	// Class is the StorageClass. The cluster's default if absent; the empty string binds only volumes without a class, as in a
	// claim. It cannot change.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	Class *string `json:"class,omitempty"`

	// WAL puts the write-ahead log on a volume of its own. It can be chosen only when the Database is created.
	// +optional
	WAL *VolumeSpec `json:"wal,omitempty"`

	// Growth grows the data volume by itself when it fills. Off if absent.
	// +optional
	Growth *GrowthSpec `json:"growth,omitempty"`
}

// VolumeSpec describes one further volume.
//
// +kubebuilder:validation:XValidation:rule="has(self.class) == has(oldSelf.class) && (!has(self.class) || self.class == oldSelf.class)",message="the storage class cannot change; put it back, or create another Database and move the data",fieldPath=".class"
type VolumeSpec struct {
	// Size of the volume. It may grow, never shrink.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).isGreaterThan(quantity('0'))",message="must be a size above zero, as 10Gi"
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity(string(oldSelf))) >= 0",messageExpression="'a volume cannot shrink from ' + string(oldSelf) + ' to ' + string(self) + '; keep ' + string(oldSelf) + ' or more'"
	Size resource.Quantity `json:"size"`

	// Class is the StorageClass. The cluster's default if absent; the empty string binds only volumes without a class, as in a
	// claim. It cannot change.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	Class *string `json:"class,omitempty"`
}

// GrowthSpec bounds the growth of a volume.
type GrowthSpec struct {
	// WhenFullPercent of the volume is used, it grows.
	// +optional
	// +kubebuilder:default=80
	// +kubebuilder:validation:Minimum=50
	// +kubebuilder:validation:Maximum=99
	WhenFullPercent *int32 `json:"whenFullPercent,omitempty"`

	// StepPercent of its size is what it grows by at a time.
	// +optional
	// +kubebuilder:default=25
	// +kubebuilder:validation:Minimum=5
	// +kubebuilder:validation:Maximum=200
	StepPercent *int32 `json:"stepPercent,omitempty"`

	// MaxSize that it never grows past.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).isGreaterThan(quantity('0'))",message="must be a size above zero, as 10Gi"
	MaxSize resource.Quantity `json:"maxSize"`
}

// PostgresSpec holds what only PostgreSQL knows.
type PostgresSpec struct {
	// HBA are further lines of pg_hba.conf. They come after Plimsoll's own lines and before the last one, which lets every
	// user in over TLS with a password.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:Pattern=`^[^\r\n\x00]+$`
	HBA []string `json:"hba,omitempty"`
}

// ReplicationSpec says how the instances follow the primary.
type ReplicationSpec struct {
	// Synchronous says what a commit waits for: required for a majority of the instances, preferred for as many of them as follow
	// now, none for not at all. The default is required, and preferred for two instances with a witness, where required would stop
	// writes at the loss of either. A single instance waits for nobody, whatever is asked; status.effective.synchronous is what holds.
	// +optional
	Synchronous SynchronousMode `json:"synchronous,omitempty"`

	// Witness says whether two instances have a third voter that holds no data, so that either can go on when the other is lost. It is
	// a small pod on a node of its own; where there is no third node, it waits for one. With any other number of instances there is none.
	// +optional
	Witness WitnessMode `json:"witness,omitempty"`
}

// TLSSpec says where certificates come from. At most one of serverSecret and issuerRef.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.serverSecret) && size(self.serverSecret) > 0 && has(self.issuerRef))",message="set at most one of serverSecret and issuerRef; remove one"
type TLSSpec struct {
	// ServerSecret names a Secret with tls.crt, tls.key and ca.crt for the server.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	ServerSecret string `json:"serverSecret,omitempty"`

	// IssuerRef asks cert-manager for the server's certificate.
	// +optional
	IssuerRef *IssuerReference `json:"issuerRef,omitempty"`
}

// IssuerReference names a cert-manager issuer.
type IssuerReference struct {
	// Name of the issuer.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name"`

	// Kind of the issuer.
	// +optional
	// +kubebuilder:default=Issuer
	// +kubebuilder:validation:Enum=Issuer;ClusterIssuer
	Kind string `json:"kind,omitempty"`
}

// BootstrapSpec says how a new database is made.
type BootstrapSpec struct {
	// Database to create.
	// +optional
	// +kubebuilder:default=app
	// +kubebuilder:validation:Pattern=`^[a-z_][a-z0-9_]{0,62}$`
	Database string `json:"database,omitempty"`

	// Owner of that database: a login role.
	// +optional
	// +kubebuilder:default=app
	// +kubebuilder:validation:Pattern=`^[a-z_][a-z0-9_]{0,62}$`
	Owner string `json:"owner,omitempty"`

	// CredentialsSecret names a Secret with keys username and password for the owner. Without it Plimsoll makes a password.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	CredentialsSecret string `json:"credentialsSecret,omitempty"`

	// SQL to run once in the new database, as its owner, in order.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	SQL []SQLSource `json:"sql,omitempty"`
}

// SQLSource is a key of a ConfigMap or a Secret. Exactly one.
//
// +kubebuilder:validation:XValidation:rule="has(self.configMapKeyRef) != has(self.secretKeyRef)",message="set exactly one of configMapKeyRef and secretKeyRef"
type SQLSource struct {
	// ConfigMapKeyRef selects a key of a ConfigMap in the Database's namespace.
	// +optional
	ConfigMapKeyRef *KeyReference `json:"configMapKeyRef,omitempty"`

	// SecretKeyRef selects a key of a Secret in the Database's namespace.
	// +optional
	SecretKeyRef *KeyReference `json:"secretKeyRef,omitempty"`
}

// KeyReference is one key of one object in the Database's namespace.
type KeyReference struct {
	// Name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name"`

	// Key in its data.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]+$`
	Key string `json:"key"`
}

// SchedulingSpec places the instances.
type SchedulingSpec struct {
	// Spread over nodes: required refuses to put two instances on one node, preferred only avoids it.
	// +optional
	// +kubebuilder:default=preferred
	// +kubebuilder:validation:Enum=required;preferred
	Spread string `json:"spread,omitempty"`

	// NodeSelector that nodes must match.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Affinity of the pods, beside the spread over nodes and zones that Plimsoll asks for.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// Tolerations of the pods.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// PriorityClassName of the pods.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	PriorityClassName string `json:"priorityClassName,omitempty"`
}

// ObservabilitySpec says what the probes of the nodes tell of a Database. A change of it restarts nothing.
type ObservabilitySpec struct {
	// Statements that are told one by one.
	// +optional
	Statements StatementsSpec `json:"statements,omitzero"`
}

// StatementsSpec says which statements a probe tells one by one, as lines of its log and to its receiver of logs, if it has one.
type StatementsSpec struct {
	// Slow tells each statement for whose answer a client waits as long as this, or longer; 0s tells none. Without it, what
	// the Probe says holds: 1s by default.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]{1,5}(\.[0-9]{1,9})?(h|m|s|ms|us|µs|ns)){1,4}$`
	Slow *metav1.Duration `json:"slow,omitempty"`

	// Failed tells each statement that is answered with an error, a thousand a second at most. Without it, what the
	// Probe says holds: true by default.
	// +optional
	Failed *bool `json:"failed,omitempty"`

	// Literals tells these statements as clients sent them, with what is secret in their literals. Without it, only their normal form is told.
	// +optional
	Literals bool `json:"literals,omitempty"`
}

// MaintenanceSpec takes the Database or instances out of service on purpose.
type MaintenanceSpec struct {
	// Paused stops the operator from changing anything; the instances go on, and fail over, by themselves.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// Hibernated stops every instance and keeps the volumes.
	// +optional
	Hibernated bool `json:"hibernated,omitempty"`

	// Fenced instances run no server; their pods and volumes stay. "*" fences all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^(\*|[a-z]([-a-z0-9]*[a-z0-9])?)$`
	Fenced []string `json:"fenced,omitempty"`
}

// DatabaseStatus is what is.
type DatabaseStatus struct {
	// ObservedGeneration is the generation of the spec that this status answers.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Phase is the state in one word.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Phase",xDescriptors={"urn:alm:descriptor:io.kubernetes.phase"}
	Phase Phase `json:"phase,omitempty"`

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
	Witness *WitnessStatus `json:"witness,omitempty"`

	// Instances, by name.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Instances"
	// +listType=map
	// +listMapKey=name
	Instances []InstanceStatus `json:"instances,omitempty"`

	// Certificates and when they end.
	// +optional
	// +listType=map
	// +listMapKey=name
	Certificates []CertificateStatus `json:"certificates,omitempty"`

	// Effective is what holds where the spec leaves a choice.
	// +optional
	Effective *EffectiveSpec `json:"effective,omitempty"`

	// Requests are answers to the newest requests for a switchover, a restart or new certificates, newest first, at most ten.
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +listMapKey=id
	Requests []RequestStatus `json:"requests,omitempty"`

	// HandOvers are the newest changes of the leader, newest first, at most ten.
	// +optional
	// +listType=map
	// +listMapKey=epoch
	HandOvers []HandOver `json:"handOvers,omitempty"`
}

// Database is one replicated database: a primary that takes writes and replicas that follow it.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
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
