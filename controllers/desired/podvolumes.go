package desired

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
)

const (
	volumeData, volumeWAL      = "data", "wal"
	volumeBin, volumeEtc       = "bin", "etc"
	volumeRun, volumeTmp       = "run", "tmp"
	volumeShm, volumeToken     = "shm", "token"
	volumeMember, volumeServer = "member-tls", "server-tls"

	tokenDir = "/var/run/secrets/kubernetes.io/serviceaccount"
	// tokenLife is an hour: the kubelet renews it after four fifths, so that an agent outlives twelve minutes without an API
	// server at the least. With the shortest life allowed, ten minutes, it would be two, and the agent could not lead on.
	tokenLife = 3600

	// secretMode: fsGroup makes the files root's with the pod's group. PostgreSQL takes a key of root's that its group may read
	// and nobody else may touch.
	secretMode = 0o440
	tokenMode  = 0o440
)

// scratchVolumes hold nothing that anyone would miss.
func scratchVolumes() []string {
	return []string{volumeBin, volumeEtc, volumeRun, volumeTmp, volumeShm}
}

func volumes(in Inputs, name string) []corev1.Volume {
	v := []corev1.Volume{
		claimVolume(volumeData, name),
		diskVolume(volumeBin, "256Mi"),
		diskVolume(volumeEtc, "1Mi"),
		memoryVolume(volumeRun, resource.MustParse("64Mi")),
		// In memory, too: a full one refuses a write, whereas the kubelet evicts a pod whose volume on disk outgrows its limit.
		memoryVolume(volumeTmp, resource.MustParse("64Mi")),
		memoryVolume(volumeShm, sharedMemory(in)),
		secretVolume(volumeMember, MemberName(name)),
		secretVolume(volumeServer, ServerName(in.Database.Name)),
		tokenVolume(),
	}
	if in.Database.Spec.Storage.WAL != nil {
		v = append(v, claimVolume(volumeWAL, WALClaimName(name)))
	}
	return v
}

func mounts(in Inputs) []corev1.VolumeMount {
	m := []corev1.VolumeMount{
		{Name: volumeData, MountPath: engine.DataDir},
		{Name: volumeBin, MountPath: engine.BinDir, ReadOnly: true},
		{Name: volumeEtc, MountPath: "/etc/passwd", SubPath: "passwd", ReadOnly: true},
		{Name: volumeEtc, MountPath: "/etc/group", SubPath: "group", ReadOnly: true},
		{Name: volumeRun, MountPath: engine.RunDir},
		{Name: volumeTmp, MountPath: "/tmp"},
		{Name: volumeShm, MountPath: "/dev/shm"},
		{Name: volumeMember, MountPath: engine.MemberTLSDir, ReadOnly: true},
		{Name: volumeServer, MountPath: engine.ServerTLSDir, ReadOnly: true},
		{Name: volumeToken, MountPath: tokenDir, ReadOnly: true},
	}
	if in.Database.Spec.Storage.WAL != nil {
		m = append(m, corev1.VolumeMount{Name: volumeWAL, MountPath: engine.WALDir})
	}
	return m
}

// sharedMemory bounds /dev/shm, which PostgreSQL's parallel queries use; the runtimes' own 64 MiB is too little for them. It
// counts as the container's memory, so it may be half of the limit at most: then a query fails, not the server.
func sharedMemory(in Inputs) resource.Quantity {
	size := resource.MustParse("1Gi")
	limit, limited := in.Database.Spec.Resources.Limits[corev1.ResourceMemory]
	if !limited || limit.IsZero() || limit.Value()/2 >= size.Value() {
		return size
	}
	return *resource.NewQuantity(limit.Value()/2, resource.BinarySI)
}

func claimVolume(name, claim string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}
}

func diskVolume(name, limit string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse(limit))},
	}}
}

func memoryVolume(name string, limit resource.Quantity) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: &limit},
	}}
}

func secretVolume(name, secret string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: secret, DefaultMode: new(int32(secretMode))},
	}}
}

// tokenVolume is what automounting would give, with a life that we chose.
func tokenVolume() corev1.Volume {
	return corev1.Volume{Name: volumeToken, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		DefaultMode: new(int32(tokenMode)),
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(tokenLife))}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
				Path:     "namespace",
				FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
			}}}},
		},
	}}}
}
