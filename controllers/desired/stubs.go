package desired

import (
	corev1 "k8s.io/api/core/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// MaxNameLength is the longest name of a Database whose derived names stay valid.
const MaxNameLength = 43

// Pod of an instance. Pods are made by ssa.Create and never applied: their spec cannot change. The role's label is applied
// beside by PodRole.
func Pod(in Inputs, instance Instance) *corev1.Pod { panic("todo") }

// PodRole is the part of a live pod that the manager keeps changing: its role's label; ssa.Apply it.
func PodRole(in Inputs, instance Instance, role v1.Role) *corev1.Pod { panic("todo") }

// PodHash is the hash that a pod was made with (annotation plimsoll.dev/pod-spec-hash). A live pod whose hash differs from
// that of Pod() is outdated. The agent's image does not count: an operator upgrade restarts nothing.
func PodHash(pod *corev1.Pod) string { panic("todo") }

// DataClaim of an instance; ssa.Apply it, also to grow it.
func DataClaim(in Inputs, instance Instance) *corev1.PersistentVolumeClaim { panic("todo") }

// WALClaim of an instance; nil where spec.storage.wal is absent.
func WALClaim(in Inputs, instance Instance) *corev1.PersistentVolumeClaim { panic("todo") }

// Services of a Database: rw, ro, r and members, in that order; ssa.Apply each.
func Services(in Inputs) []*corev1.Service { panic("todo") }

// EndpointSlice is the shell that the leader's agent fills. ssa.Create it once; it is never applied, because the list of
// endpoints is atomic and the agent's.
func EndpointSlice(in Inputs) *discoveryv1.EndpointSlice { panic("todo") }

// Lease is the shell of the leadership's record. ssa.Create it once; it is never applied. Bootstrap names the member that may
// initialise; it must be empty for a Database that ever had a leader (status.epoch > 0), so that a lost Lease cannot make a
// new, empty database.
func Lease(in Inputs, bootstrap string) *coordinationv1.Lease { panic("todo") }

// ServiceAccount, Role and RoleBinding of the agents; ssa.Apply each.
func ServiceAccount(in Inputs) *corev1.ServiceAccount { panic("todo") }

// Role lets the agents get and update their one Lease and their one EndpointSlice.
func Role(in Inputs) *rbacv1.Role { panic("todo") }

// RoleBinding binds Role to the agents' ServiceAccount.
func RoleBinding(in Inputs) *rbacv1.RoleBinding { panic("todo") }

// ConnectionSecret is what a client mounts at /etc/plimsoll/<its name>; ssa.Apply it.
func ConnectionSecret(in Inputs, c Connection) *corev1.Secret { panic("todo") }

// AuthoritySecret, ServerSecret and MemberSecret hold data rendered by certificate.Material; ssa.Apply each.
func AuthoritySecret(in Inputs, data map[string][]byte) *corev1.Secret { panic("todo") }

// ServerSecret holds the server's certificate for clients. A Secret or issuer of the user's is copied into it, so that the pod
// always mounts the same one.
func ServerSecret(in Inputs, data map[string][]byte) *corev1.Secret { panic("todo") }

// MemberSecret holds the certificate by which an instance is known to the others and to the manager.
func MemberSecret(in Inputs, instance Instance, data map[string][]byte) *corev1.Secret { panic("todo") }

// NetworkPolicy of the pods; ssa.Apply it.
func NetworkPolicy(in Inputs) *networkingv1.NetworkPolicy { panic("todo") }

// PodDisruptionBudget of the pods; ssa.Apply it.
func PodDisruptionBudget(in Inputs) *policyv1.PodDisruptionBudget { panic("todo") }

// ManagerPodLabels select the manager's pods in the operator's namespace; its Deployment must carry them.
func ManagerPodLabels() map[string]string { panic("todo") }
