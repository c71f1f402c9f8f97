package v1

// Labels and annotations that Plimsoll writes or reads.
const (
	// LabelDatabase holds the Database's name on every object made for it.
	LabelDatabase = "plimsoll.dev/database"
	// LabelInstance holds the instance's name on its pod and volumes.
	LabelInstance = "plimsoll.dev/instance"
	// LabelRole holds the instance's role on its pod: primary or replica. The manager writes it, for people and for the -ro Service.
	LabelRole = "plimsoll.dev/role"
	// LabelKind says what a pod of a Database is: KindInstance or KindWitness. Services for reads select instances alone.
	LabelKind = "plimsoll.dev/kind"
	// LabelRegion on a namespace is the default of spec.region.
	LabelRegion = "plimsoll.dev/region"

	// AnnotationSecretsHash on a pod is the hash of the certificates that it should use: a change of it makes the kubelet refresh
	// the mounted Secrets at once.
	AnnotationSecretsHash = "plimsoll.dev/secrets-hash"
	// AnnotationStatements on a pod is spec.observability.statements of its Database as JSON, for the probe of its node. The manager writes it, and
	// changes it on running pods.
	AnnotationStatements = "plimsoll.dev/statements"
	// AnnotationOperation on an event is the id of the pass that told it, as the logs have it.
	AnnotationOperation = "plimsoll.dev/operation"

	// AnnotationSwitchover on a Database asks for a switchover: a Request as JSON.
	AnnotationSwitchover = "plimsoll.dev/switchover"
	// AnnotationRestart on a Database asks for a restart: a Request as JSON.
	AnnotationRestart = "plimsoll.dev/restart"
	// AnnotationRotate on a Database asks for a new certificate authority and new certificates: a Request as JSON, without a target.
	AnnotationRotate = "plimsoll.dev/rotate-certificates"
	// AnnotationRecover on a Database gives the lead to one instance after a majority is lost for good: a Request as JSON, with its
	// leaseVersion and acceptLoss.
	AnnotationRecover = "plimsoll.dev/recover"
	// AnnotationFence on a Database lists instances to fence beside spec.maintenance.fenced, comma-separated.
	AnnotationFence = "plimsoll.dev/fence"

	// AnnotationLeadership on the Lease holds the record of the leadership as JSON.
	AnnotationLeadership = "plimsoll.dev/leadership"
	// AnnotationBootstrap on the Lease of a new Database names the one member that may initialise it.
	AnnotationBootstrap = "plimsoll.dev/bootstrap"
	// AnnotationPodSpecHash on a pod is the hash of the spec that it was made from; another hash means that it is outdated.
	AnnotationPodSpecHash = "plimsoll.dev/pod-spec-hash"
	// AnnotationApplied, on an object of which the operator keeps only the metadata in mind, is a sum of what it applied.
	AnnotationApplied = "plimsoll.dev/applied"
	// AnnotationDatabaseUID on a claim is the UID of the Database that it was made for: it tells a volume that was retained from
	// an earlier Database of the same name.
	AnnotationDatabaseUID = "plimsoll.dev/database-uid"
)

// Values of LabelKind.
const (
	KindInstance = "instance"
	KindWitness  = "witness"
)

// Request is what the annotations AnnotationSwitchover, AnnotationRestart, AnnotationRotate and AnnotationRecover hold, as JSON.
type Request struct {
	// ID of the request, unique among those of its kind to its Database; the answer in status.requests carries both.
	ID string `json:"id"`
	// Target instance; empty leaves the choice to the operator (switchover) or means all (restart). A rotation has none.
	Target string `json:"target,omitempty"`
	// Expires in RFC 3339; a request that was not begun by then is answered Expired.
	Expires string `json:"expires"`
	// LeaseVersion is the resourceVersion of the Lease on which the loss was accepted (recover): if the Lease has changed since,
	// nothing is done.
	LeaseVersion string `json:"leaseVersion,omitempty"`
	// AcceptLoss must be true (recover): what the instance lacks is lost.
	AcceptLoss bool `json:"acceptLoss,omitempty"`
}
