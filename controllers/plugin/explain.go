package plugin

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// explain turns an answer of the API server that has a usual cause into that cause.
func explain(err error) error {
	// A path that the server does not know is a 404 whose details name no object.
	if status, ok := err.(apierrors.APIStatus); ok && apierrors.IsNotFound(err) && status.Status().Details != nil && status.Status().Details.Name == "" {
		return errNoKind
	}
	return err
}

// advice is what to do next for a reason of a condition; empty where there is nothing to do but wait.
func advice(reason string) string {
	switch reason {
	case v1.ReasonNoPrimary:
		return "see what each instance waits for above; kubectl plimsoll logs shows the servers' own words"
	case v1.ReasonMajorityLost:
		return "bring a lost volume back, or run the command that the message names: without --accept-loss it only shows what would be lost"
	case v1.ReasonLeaderSilent:
		return "let the operator's pods reach port 7470 of the Database's pods; kubectl plimsoll psql shows whether it takes writes"
	case v1.ReasonInstancesNotReady:
		return "see the messages of the instances above"
	case v1.ReasonPaused:
		return "set spec.maintenance.paused to false to let the operator act again"
	case v1.ReasonHibernated:
		return "set spec.maintenance.hibernated to false to start the instances again"
	case v1.ReasonInvalidSpec:
		return "change the field that the message names, then apply again"
	case v1.ReasonSecretMissing:
		return "create the Secret, or the key, that the message names"
	case v1.ReasonIssuerNotReady:
		return "create or mend the issuer that the message names, or remove spec.tls.issuerRef"
	case v1.ReasonSecretConflict:
		return "delete the Secret that the message names, or name the Database otherwise"
	case v1.ReasonNameConflict:
		return "delete the object that the message names, or name the Database otherwise"
	case v1.ReasonVolumesExist:
		return "delete the volumes that the message names, or name the Database otherwise"
	case v1.ReasonImagePull:
		return "correct spec.image, spec.version or spec.imagePullSecrets"
	case v1.ReasonContainerFailed:
		return "correct spec.image or spec.version; kubectl describe pod, and kubectl logs --previous, show more"
	case v1.ReasonUnschedulable:
		return "add nodes, lower spec.resources or relax spec.scheduling"
	case v1.ReasonServerFailed:
		return "kubectl plimsoll logs shows why the server does not start"
	case v1.ReasonLeaseOlder:
		return "start all instances, then run the command that the message names: it shows what would be lost before it does anything"
	case v1.ReasonVolumeFull:
		return "raise the size that the message names; what filled this volume fills the others', so nobody takes over"
	case v1.ReasonVolumeHangs:
		return "look at the storage of the volume that the message names; another instance leads meanwhile, where one can"
	case v1.ReasonNoMajority:
		return "bring the missing instances back"
	case v1.ReasonNodesNotReady, v1.ReasonNodesPartly:
		return "see the notes of the nodes above"
	case v1.ReasonNoNodes:
		return "correct spec.nodeSelector or spec.tolerations of the Probe"
	default:
		return ""
	}
}
