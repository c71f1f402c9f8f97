package desired

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

const (
	portAgent  = "agent"
	portHealth = "health"
)

// Services of a Database: for writes, for reads from replicas, for reads from any instance, and of the members.
func Services(in Inputs) []*corev1.Service {
	name := in.Database.Name
	write := service(in, WriteServiceName(name), nil)
	replicas := service(in, ReplicaServiceName(name), Selector(name))
	replicas.Spec.Selector[v1.LabelRole] = string(v1.RoleReplica)
	reads := service(in, ReadServiceName(name), InstanceSelector(name))
	return []*corev1.Service{write, replicas, reads, membersService(in)}
}

// membersService names every pod, ready or not: members must find each other before they are ready.
func membersService(in Inputs) *corev1.Service {
	s := service(in, MembersServiceName(in.Database.Name), Selector(in.Database.Name))
	s.Spec.ClusterIP = corev1.ClusterIPNone
	s.Spec.PublishNotReadyAddresses = true
	s.Spec.Ports = append(s.Spec.Ports, servicePort(portAgent, engine.AgentPort))
	return s
}

func service(in Inputs, name string, selector map[string]string) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: meta(in, name),
		Spec: corev1.ServiceSpec{
			Type:     corev1.ServiceTypeClusterIP,
			Selector: selector,
			Ports:    []corev1.ServicePort{servicePort(portName(in), in.Parts.Port.ContainerPort)},
		},
	}
}

func servicePort(name string, port int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Port: port, TargetPort: intstr.FromInt32(port), Protocol: corev1.ProtocolTCP}
}

// portName of the server's port; it is the same in pod, Services and EndpointSlice, since kube-proxy matches them by it.
func portName(in Inputs) string {
	if in.Parts.Port.Name != "" {
		return in.Parts.Port.Name
	}
	return string(in.Database.Spec.Engine)
}
