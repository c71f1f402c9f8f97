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
// +kubebuilder:validation:Enum=required;preferred;off
type SynchronousMode string

const (
	// SynchronousRequired acknowledges a commit only once a majority of the data-bearing members holds it durably; without a
	// majority, writes wait. Nothing acknowledged is lost when one member is.
	SynchronousRequired SynchronousMode = "required"
	// SynchronousPreferred waits for a majority while there is one, and goes on without (saying so in status) when there is none.
	SynchronousPreferred SynchronousMode = "preferred"
	// SynchronousOff never waits for a replica: the newest acknowledged writes can be lost with the primary.
	SynchronousOff SynchronousMode = "off"
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

// DatabaseSpec is what a user asks for. Nothing of Plimsoll's ever writes it.
type DatabaseSpec struct {
	// Engine is the database to run.
	Engine EngineName `json:"engine"`

	// Version of the engine, as major or major.minor ("17", "15.18"). It may not be lowered, and a change of the major number
	// is refused for now.
	// +kubebuilder:validation:Pattern=`^[0-9]{1,3}(\.[0-9]{1,3}){0,2}$`
	// +kubebuilder:validation:MaxLength=11
	Version string `json:"version"`

	// Image replaces the image that the operator derives from engine and version. It must hold the server of that version.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`

	// ImagePullSecrets name Secrets in the Database's namespace with credentials for the registry of the image.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// RunAsUser is the numeric user that the server runs as. By default it follows the image's engine (999 for the official
	// PostgreSQL image); on OpenShift it is left to the platform.
	// +optional
	// +kubebuilder:validation:Minimum=1
	RunAsUser *int64 `json:"runAsUser,omitempty"`

	// Replicas is how many instances run: one primary and the rest replicas. An odd number makes the best majorities.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=15
	Replicas *int32 `json:"replicas,omitempty"`

	// MaxReplicas is the highest number that Replicas may be set to, by a person or an autoscaler.
	// +optional
	// +kubebuilder:default=9
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=15
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`

	// Storage is the volumes of each instance.
	Storage StorageSpec `json:"storage"`

	// Resources of the database container of each instance.
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`

	// Parameters of the server's configuration by name, as the engine spells them. What Plimsoll manages itself is refused with
	// the reason.
	// +optional
	// +kubebuilder:validation:MaxProperties=256
	Parameters map[string]string `json:"parameters,omitempty"`

	// Postgres holds what only PostgreSQL knows. Only with engine postgres.
	// +optional
	Postgres *PostgresSpec `json:"postgres,omitempty"`

	// Replication between the instances.
	// +optional
	Replication ReplicationSpec `json:"replication,omitempty"`

	// TLS of client connections. By default Plimsoll keeps its own certificate authority.
	// +optional
	TLS TLSSpec `json:"tls,omitempty"`

	// Bootstrap says how a new database is made. It is read once, when the first instance starts.
	// +optional
	Bootstrap BootstrapSpec `json:"bootstrap,omitempty"`

	// Region that the Database lives in, as a label for people and dashboards. The namespace's label plimsoll.dev/region is
	// taken on creation if it is empty.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`
	Region string `json:"region,omitempty"`

	// Scheduling of the instances over nodes.
	// +optional
	Scheduling SchedulingSpec `json:"scheduling,omitempty"`

	// Maintenance takes the Database or instances out of service on purpose.
	// +optional
	Maintenance MaintenanceSpec `json:"maintenance,omitempty"`

	// DeletionPolicy of the volumes when the Database is deleted.
	// +optional
	// +kubebuilder:default=Retain
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
}

// StorageSpec describes the volumes of one instance.
type StorageSpec struct {
	// Size of the data volume. It may grow, never shrink.
	Size resource.Quantity `json:"size"`

	// Class is the StorageClass; the cluster's default if empty. It cannot change.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Class *string `json:"class,omitempty"`

	// WAL puts the write-ahead log on a volume of its own. It can be chosen only when the Database is created.
	// +optional
	WAL *VolumeSpec `json:"wal,omitempty"`

	// Growth grows the data volume by itself when it fills. Off if absent.
	// +optional
	Growth *GrowthSpec `json:"growth,omitempty"`
}

// VolumeSpec describes one further volume.
type VolumeSpec struct {
	// Size of the volume. It may grow, never shrink.
	Size resource.Quantity `json:"size"`

	// Class is the StorageClass; the cluster's default if empty. It cannot change.
	// +optional
	// +kubebuilder:validation:MaxLength=253
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
	HBA []string `json:"hba,omitempty"`
}

// ReplicationSpec says how the instances follow the primary.
type ReplicationSpec struct {
	// Synchronous says what a commit waits for. By default required with three or more replicas, required too with two, off
	// with one: see status.effective.synchronous.
	// +optional
	Synchronous SynchronousMode `json:"synchronous,omitempty"`
}

// TLSSpec says where certificates come from. At most one of ServerSecret and IssuerRef.
type TLSSpec struct {
	// ServerSecret names a Secret with tls.crt, tls.key and ca.crt for the server.
	// +optional
	// +kubebuilder:validation:MaxLength=253
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
	CredentialsSecret string `json:"credentialsSecret,omitempty"`

	// SQL to run once in the new database, as its owner, in order.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	SQL []SQLSource `json:"sql,omitempty"`
}

// SQLSource is a key of a ConfigMap or a Secret. Exactly one.
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
	Name string `json:"name"`

	// Key in its data.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
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
	PriorityClassName string `json:"priorityClassName,omitempty"`
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
	Fenced []string `json:"fenced,omitempty"`
}

// Database is one replicated database.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:path=databases,singular=database,categories=all
// +kubebuilder:printcolumn:name="Engine",type=string,JSONPath=`.spec.engine`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name="Leader",type=string,JSONPath=`.status.leader`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Database struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the user asks for.
	Spec DatabaseSpec `json:"spec"`

	// Status is what is.
	// +optional
	Status DatabaseStatus `json:"status,omitempty"`
}

// DatabaseList is a list of Databases.
//
// +kubebuilder:object:root=true
type DatabaseList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Database `json:"items"`
}
