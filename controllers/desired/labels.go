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

	nameValue      = "plimsoll"
	managedByValue = "plimsoll-operator"
	managerValue   = "manager"
)

// ManagerPodLabels select the manager's pods in the operator's namespace; its Deployment must carry them.
func ManagerPodLabels() map[string]string {
	return map[string]string{labelName: nameValue, labelComponent: managerValue}
}

// Selector matches the pods of a Database.
func Selector(database string) map[string]string {
	return map[string]string{v1.LabelDatabase: database}
}

func labels(in Inputs) map[string]string {
	return map[string]string{
		labelName:        nameValue,
		labelInstance:    in.Database.Name,
		labelManagedBy:   managedByValue,
		v1.LabelDatabase: in.Database.Name,
	}
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
