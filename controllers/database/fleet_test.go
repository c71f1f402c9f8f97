package database

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/desired"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine"
	"github.com/plimsoll-dev/plimsoll-operator/controllers/engine/postgres"
)

// fleet plays kubelet and agents for the pods of a namespace: each pod that appears gets an address on loopback, and an agent there
// that speaks the real protocol over real mTLS. Who leads is decided by the simplest rule that is not wrong.
type fleet struct {
	t         *testing.T
	direct    client.Client
	namespace string
	port      int
	// refuse makes pods of an image stay in ImagePullBackOff.
	refuse string
	// crash makes the container of pods of an image end again and again.
	crash string

	mu     sync.Mutex
	next   int
	agents map[types.UID]*fakeAgent
	epoch  int64
	leader string
	voters []string
	aims   int
	// restarts makes every change of the configuration wait for a restart.
	restarts bool
}

type fakeAgent struct {
	fleet     *fleet
	name      string
	database  string
	ip        string
	server    *http.Server
	image     string
	aim       *engine.Aim
	restarts  []string
	pending   []string
	answers   []engine.Answer
	handOver  *engine.HandOver
	failures  int64
	used      int64
	secrets   string
	problem   string
	config    atomic.Pointer[tls.Config]
	changed   chan struct{}
	uid       string
	terminate context.CancelFunc
}

func newFleet(t *testing.T, direct client.Client, namespace string) *fleet {
	t.Helper()
	f := &fleet{t: t, direct: direct, namespace: namespace, port: freePort(t), agents: map[types.UID]*fakeAgent{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			f.kubelet(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		for _, a := range f.agents {
			a.stop()
		}
	})
	return f
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// kubelet brings the agents in line with the pods that exist.
func (f *fleet) kubelet(ctx context.Context) {
	var pods corev1.PodList
	if err := f.direct.List(ctx, &pods, client.InNamespace(f.namespace)); err != nil {
		return
	}
	exist := map[types.UID]bool{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		exist[pod.UID] = true
		f.mu.Lock()
		known := f.agents[pod.UID]
		f.mu.Unlock()
		if known == nil {
			f.start(ctx, pod)
			continue
		}
		f.refresh(ctx, pod, known)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for uid, a := range f.agents {
		if !exist[uid] {
			a.stop()
			delete(f.agents, uid)
			f.lost(ctx, a)
		}
	}
}

// refresh mounts the Secrets again when the pod's annotation says that they changed.
func (f *fleet) refresh(ctx context.Context, pod *corev1.Pod, a *fakeAgent) {
	f.mu.Lock()
	same := a.secrets == pod.Annotations[v1.AnnotationSecretsHash]
	f.mu.Unlock()
	var secret corev1.Secret
	if same || f.direct.Get(ctx, types.NamespacedName{Namespace: f.namespace, Name: desired.MemberName(pod.Name)}, &secret) != nil {
		return
	}
	if err := a.load(secret.Data); err != nil {
		f.t.Logf("fleet: %v", err)
		return
	}
	f.with(func() { a.secrets = pod.Annotations[v1.AnnotationSecretsHash] })
}

// lost lets another take over when the leader's pod goes.
func (f *fleet) lost(ctx context.Context, gone *fakeAgent) {
	if f.leader != gone.name || len(f.voters) == 1 {
		return
	}
	for _, a := range f.agents {
		if slices.Contains(f.voters, a.name) && a.name != gone.name {
			f.take(ctx, a, "expired")
			return
		}
	}
}

func (f *fleet) take(ctx context.Context, a *fakeAgent, cause string) {
	now := time.Now().UnixMilli()
	a.handOver = &engine.HandOver{Epoch: f.epoch + 1, From: f.leader, Cause: cause, Seen: now - 900, Elected: now - 500, Promoted: now, Routed: now}
	f.epoch++
	f.leader = a.name
	if !slices.Contains(f.voters, a.name) {
		f.voters = append(f.voters, a.name)
	}
	f.record(ctx, a.database)
	f.nudge()
}

func (f *fleet) nudge() {
	for _, a := range f.agents {
		select {
		case a.changed <- struct{}{}:
		default:
		}
	}
}

// record writes the leadership into the Lease, as a leader's agent does: by Update.
func (f *fleet) record(ctx context.Context, database string) {
	for range 20 {
		var lease coordinationv1.Lease
		if err := f.direct.Get(ctx, types.NamespacedName{Namespace: f.namespace, Name: desired.LeaseName(database)}, &lease); err != nil {
			f.t.Logf("fleet: read the Lease: %v", err)
			return
		}
		slices.Sort(f.voters)
		raw, _ := json.Marshal(map[string]any{"version": 1, "epoch": f.epoch, "leader": f.leader, "voters": f.voters, "timeline": f.epoch})
		if lease.Annotations == nil {
			lease.Annotations = map[string]string{}
		}
		lease.Annotations[v1.AnnotationLeadership] = string(raw)
		err := f.direct.Update(ctx, &lease)
		if err == nil || !apierrors.IsConflict(err) {
			return
		}
	}
}

func (f *fleet) start(ctx context.Context, pod *corev1.Pod) {
	image := databaseImage(pod)
	if f.refuse != "" && image == f.refuse {
		pod.Status.Phase = corev1.PodPending
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "database", Image: image, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason: "ImagePullBackOff", Message: `Back-off pulling image "` + image + `": ErrImagePull: not found`,
		}}}}
		_ = f.direct.Status().Update(ctx, pod)
		return
	}
	if f.crash != "" && image == f.crash {
		now := metav1.Now()
		pod.Status.Phase, pod.Status.StartTime = corev1.PodRunning, &now
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "database", Image: image, RestartCount: 3, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: "no PostgreSQL server in the image"}},
		}}
		_ = f.direct.Status().Update(ctx, pod)
		return
	}
	database := pod.Labels[v1.LabelDatabase]
	var secret corev1.Secret
	if err := f.direct.Get(ctx, types.NamespacedName{Namespace: f.namespace, Name: desired.MemberName(pod.Name)}, &secret); err != nil {
		return // as the kubelet, which waits for a Secret that it is to mount
	}
	var owner string
	for _, o := range pod.OwnerReferences {
		owner = string(o.UID)
	}
	f.mu.Lock()
	f.next++
	ip := fmt.Sprintf("127.%d.%d.%d", 64+f.port%64, f.port/64%250, f.next)
	a := &fakeAgent{
		fleet: f, name: pod.Name, database: database, ip: ip, image: image, uid: owner, changed: make(chan struct{}, 1),
		secrets: pod.Annotations[v1.AnnotationSecretsHash], used: 10,
	}
	f.mu.Unlock()
	if err := a.serve(f.port, secret.Data); err != nil {
		f.t.Logf("fleet: %v", err)
		return
	}
	f.mu.Lock()
	f.agents[pod.UID] = a
	f.mu.Unlock()
	pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, ip, []corev1.PodIP{{IP: ip}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	if err := f.direct.Status().Update(ctx, pod); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		f.t.Logf("fleet: status of %s: %v", pod.Name, err)
	}
	// A conflict (the manager labelled it meanwhile) is tried again.
	for range 20 {
		var now corev1.Pod
		if err := f.direct.Get(ctx, client.ObjectKeyFromObject(pod), &now); err != nil || now.Status.PodIP == ip {
			return
		}
		now.Status = pod.Status
		_ = f.direct.Status().Update(ctx, &now)
	}
}

// load makes what a handshake uses of a member's Secret.
func (a *fakeAgent) load(tlsData map[string][]byte) error {
	cert, err := tls.X509KeyPair(tlsData["tls.crt"], tlsData["tls.key"])
	if err != nil {
		return fmt.Errorf("member certificate of %s: %w", a.name, err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(tlsData["ca.crt"])
	a.config.Store(&tls.Config{
		Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
	})
	return nil
}

func (a *fakeAgent) serve(port int, tlsData map[string][]byte) error {
	if err := a.load(tlsData); err != nil {
		return err
	}
	listener, err := tls.Listen("tcp", net.JoinHostPort(a.ip, strconv.Itoa(port)), &tls.Config{
		MinVersion: tls.VersionTLS13, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return a.config.Load(), nil },
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	a.terminate = cancel
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /v1/aim", a.takeAim)
	mux.HandleFunc("GET /v1/report", a.tell)
	a.server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	go func() { _ = a.server.Serve(listener) }()
	return nil
}

func (a *fakeAgent) stop() {
	a.terminate()
	_ = a.server.Close()
}

func (a *fakeAgent) takeAim(w http.ResponseWriter, r *http.Request) {
	if r.TLS.PeerCertificates[0].Subject.CommonName != "plimsoll-manager" {
		http.Error(w, "not the manager", http.StatusForbidden)
		return
	}
	var aim engine.Aim
	if err := json.NewDecoder(r.Body).Decode(&aim); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f := a.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	if aim.Epoch < f.epoch {
		http.Error(w, "a later epoch was seen", http.StatusConflict)
		return
	}
	f.aims++
	if f.restarts && a.aim != nil && a.aim.Files[postgres.FileParameters] != aim.Files[postgres.FileParameters] {
		a.pending = []string{"shared_buffers"}
	}
	a.aim = &aim
	a.obey(context.WithoutCancel(r.Context()))
	f.nudge()
	w.WriteHeader(http.StatusNoContent)
}

func (a *fakeAgent) obey(ctx context.Context) {
	f, aim := a.fleet, a.aim
	if f.epoch == 0 && aim.Bootstrap == a.name {
		f.voters = []string{a.name}
		f.take(ctx, a, "bootstrap")
		a.handOver.From = ""
	}
	if aim.Restart != "" && !slices.Contains(a.restarts, aim.Restart) {
		a.restarts, a.pending = append(a.restarts, aim.Restart), nil
	}
	if f.leader != a.name {
		return
	}
	if s := aim.Switchover; s != nil && !slices.ContainsFunc(a.answers, func(x engine.Answer) bool { return x.ID == s.ID }) {
		for _, other := range f.agents {
			if other != a && (s.Target == "" || other.name == s.Target) {
				a.answers = append(a.answers, engine.Answer{ID: s.ID, State: "Done", Message: other.name + " leads"})
				f.take(ctx, other, "switchover")
				return
			}
		}
		a.answers = append(a.answers, engine.Answer{ID: s.ID, State: "Failed", Message: "no such replica"})
	}
	f.vote(ctx)
}

// vote makes the leader's voters those members of its aim that have an agent.
func (f *fleet) vote(ctx context.Context) {
	for _, a := range f.agents {
		if a.name != f.leader || a.aim == nil {
			continue
		}
		var voters []string
		for _, m := range a.aim.Members {
			for _, other := range f.agents {
				if other.name == m.Name && other.aim != nil && !slices.Contains(voters, m.Name) {
					voters = append(voters, m.Name)
				}
			}
		}
		slices.Sort(voters)
		slices.Sort(f.voters)
		if len(voters) > 0 && !slices.Equal(voters, f.voters) {
			f.voters = voters
			f.record(ctx, a.database)
			f.nudge()
		}
	}
}

func (a *fakeAgent) report() engine.Report {
	f := a.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	f.vote(context.Background())
	r := engine.Report{
		Instance: a.name, UID: a.uid, AgentVersion: "fake", Epoch: f.epoch, Leader: f.leader, Voters: slices.Clone(f.voters),
		Leading: f.leader == a.name, Role: engine.Replica, State: "running", Version: "15.18", LagBytes: 0, SecretsHash: a.secrets,
		Position: engine.Position{Timeline: uint64(f.epoch), Bytes: 1 << 24, Text: "0/1000000"}, Data: engine.VolumeUse{Size: 100, Used: a.used},
		Requests: slices.Clone(a.answers), RestartPending: slices.Clone(a.pending), AuthFailures: a.failures, MaxConnections: 100, Connections: 3,
	}
	if a.handOver != nil {
		h := *a.handOver
		r.HandOver = &h
	}
	if n := len(a.restarts); n > 0 {
		r.RestartDone = a.restarts[n-1]
	}
	if a.aim == nil || f.epoch == 0 {
		r.State, r.Version = "starting", ""
		return r
	}
	r.Revision, _ = a.aim.Revision()
	r.Converged, r.Ready = true, true
	if r.Leading {
		r.Role, r.InSync, r.SyncWanted = engine.Primary, len(f.voters)-1, len(f.voters)/2
		r.Streaming = slices.DeleteFunc(slices.Clone(f.voters), func(v string) bool { return v == a.name })
	}
	if a.problem != "" {
		r.Ready, r.Converged, r.Problem, r.Reason = false, false, a.problem, "ServerFailed"
	}
	if a.aim.Stop {
		r.Role, r.State, r.Ready = engine.Stopped, "fenced", false
	}
	return r
}

func (a *fakeAgent) tell(w http.ResponseWriter, r *http.Request) {
	encode := json.NewEncoder(w)
	if r.URL.Query().Get("watch") == "" {
		_ = encode.Encode(a.report())
		return
	}
	for r.Context().Err() == nil {
		for _, speaker := range a.speakers(r.URL.Query().Get("members") != "") {
			if encode.Encode(speaker.report()) != nil {
				return
			}
		}
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
		case <-a.changed:
		case <-time.After(5 * time.Second):
		}
	}
}

// speakers are the agent and, if they are asked for, the others of its Database, as far as it would reach them.
func (a *fakeAgent) speakers(members bool) []*fakeAgent {
	out := []*fakeAgent{a}
	f := a.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, other := range f.agents {
		if members && other != a && other.uid == a.uid {
			out = append(out, other)
		}
	}
	return out
}

// of finds the agent of an instance, for a test to play with.
func (f *fleet) of(name string) *fakeAgent {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.agents {
		if a.name == name {
			return a
		}
	}
	return nil
}

// with changes the agents under the lock and lets them tell.
func (f *fleet) with(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	f.nudge()
}
