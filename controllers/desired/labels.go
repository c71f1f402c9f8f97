package desired

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// Well-known labels and their values.
const (
	labelName      = "app.kubernetes.io/name"
	labelInstance  = "app.kubernetes.io/instance"
	labelManagedBy = "app.kubernetes.io/managed-by"
	labelComponent = "app.kubernetes.io/component"
	labelPartOf    = "app.kubernetes.io/part-of"

	operatorValue = "plimsoll"
	managerValue  = "manager"
	databaseValue = "database"
)

// ManagerPodLabels select the manager's pods in the operator's namespace; its Deployment must carry them.
func ManagerPodLabels() map[string]string {
	return map[string]string{labelName: operatorValue, labelComponent: managerValue}
}

// Selector matches the pods of a Database.
func Selector(database string) map[string]string {
	return map[string]string{v1.LabelDatabase: database}
}

// InstanceSelector matches the pods of a Database's instances, without a witness.
func InstanceSelector(database string) map[string]string {
	return map[string]string{v1.LabelDatabase: database, v1.LabelKind: v1.KindInstance}
}

// labels are for people and their tools: nothing of Plimsoll's selects by any but plimsoll.dev's, so that these may change without
// a pod that is made anew. What the database is part of, only its owner can say: by that label on the Database. There is none for the
// version: a pod may outlive a change of it, and status.instances says what each one runs.
func labels(in Inputs) map[string]string {
	l := map[string]string{
		labelName:        in.Parts.Name,
		labelInstance:    in.Database.Name,
		labelComponent:   databaseValue,
		labelManagedBy:   operatorValue,
		v1.LabelDatabase: in.Database.Name,
	}
	if whole := in.Database.Labels[labelPartOf]; whole != "" {
		l[labelPartOf] = whole
	}
	return l
}

func instanceLabels(in Inputs, i Instance) map[string]string {
	l := labels(in)
	l[v1.LabelInstance] = InstanceName(in.Database.Name, i.Ordinal)
	return l
}

// meta is the metadata of an object that goes when the Database goes.
func meta(in Inputs, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:            name,
		Namespace:       in.Database.Namespace,
		Labels:          labels(in),
		OwnerReferences: []metav1.OwnerReference{owner(in)},
	}
}

func instanceMeta(in Inputs, i Instance, name string) metav1.ObjectMeta {
	m := meta(in, name)
	m.Labels = instanceLabels(in, i)
	return m
}

func owner(in Inputs) metav1.OwnerReference {
	return *metav1.NewControllerRef(in.Database, v1.GroupVersion.WithKind("Database"))
}
