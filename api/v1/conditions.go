package v1

// Types of conditions, of a Database or a Probe.
const (
	// ConditionReady is true while a primary takes writes and every instance that was asked for is ready.
	ConditionReady = "Ready"
	// ConditionReconciling is true while the operator changes something or waits for a change to take effect.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is true when nothing will go on until a person does something; the message says what.
	ConditionStalled = "Stalled"
	// ConditionDurable is true while each write waits until a majority of the members holds it durably: what was acknowledged then
	// outlives the loss of any one. It is false where the Database was asked not to wait.
	ConditionDurable = "Durable"
)

// Reasons of conditions and events. Each says what to do next.
const (
	// ReasonAllReady : nothing to do.
	ReasonAllReady = "AllReady"
	// ReasonCreating : wait; status.instances shows how far it is.
	ReasonCreating = "Creating"
	// ReasonChanging : wait; status.instances shows which instance is being changed.
	ReasonChanging = "Changing"
	// ReasonNoPrimary : no instance leads. See status.instances for what each waits for.
	ReasonNoPrimary = "NoPrimary"
	// ReasonLeaseOlder : the Lease is missing or older than what the instances saw there, as after etcd was restored from a backup, and nobody
	// leads who could repair it; `kubectl plimsoll recover` gives the lead to one.
	ReasonLeaseOlder = "LeaseOlder"
	// ReasonAPIServerAway : agents cannot read or write the Lease, and nobody is elected without it; let them reach the API server. A primary
	// that leads goes on meanwhile.
	ReasonAPIServerAway = "APIServerAway"
	// ReasonLeaseUnusable : the Lease cannot be understood, written by a later release for one; do as the message says.
	ReasonLeaseUnusable = "LeaseUnusable"
	// ReasonOnlyLastLeader : the last leader alone is known to hold all that was acknowledged; bring it back.
	ReasonOnlyLastLeader = "OnlyLastLeader"
	// ReasonVotersSilent : too few voters answer for a majority; bring back those that the message names.
	ReasonVotersSilent = "VotersSilent"
	// ReasonVotersRefuse : enough voters answer, and too few give their vote; the message says why.
	ReasonVotersRefuse = "VotersRefuse"
	// ReasonVotersAhead : instances that cannot lead hold more than those that can; see their messages.
	ReasonVotersAhead = "VotersAhead"
	// ReasonPromiseUnwritten : the instance's volume has not taken its promise, without which it votes for nobody; look at its storage.
	ReasonPromiseUnwritten = "PromiseUnwritten"
	// ReasonPositionUnknown : how far the instance's log goes is not known yet; wait.
	ReasonPositionUnknown = "PositionUnknown"
	// ReasonTriesAgain : the instance's attempt to be elected failed, and it tries again; wait, or see the message if that goes on.
	ReasonTriesAgain = "TriesAgain"
	// ReasonRecovering : the instance was ordered to lead alone, and asks the others whether they know of a leader; wait.
	ReasonRecovering = "Recovering"
	// ReasonGrantsMissing : the instance has won the election, and waits for a majority to grant it the lead; wait.
	ReasonGrantsMissing = "GrantsMissing"
	// ReasonBeingPromoted : an instance has won the election and is being made primary; wait.
	ReasonBeingPromoted = "BeingPromoted"
	// ReasonNotRouted : the instance leads, and the EndpointSlice does not name it; clients are not sent to it yet. The message says why.
	ReasonNotRouted = "NotRouted"
	// ReasonStillReceives : the server has not ended receiving from the old leader; wait.
	ReasonStillReceives = "StillReceives"
	// ReasonStopsServer : the instance led, and its server is being stopped; wait.
	ReasonStopsServer = "StopsServer"
	// ReasonGrantRuns : the instance's grant to a leader that is silent has not run out; wait, three seconds at most.
	ReasonGrantRuns = "GrantRuns"
	// ReasonJustRestarted : what the instance may have granted before it was restarted has not run out; wait, three seconds at most.
	ReasonJustRestarted = "JustRestarted"
	// ReasonStandsAside : another instance goes first; wait.
	ReasonStandsAside = "StandsAside"
	// ReasonNoVote : the instance has no vote; it gets one once it has caught up with a leader.
	ReasonNoVote = "NoVote"
	// ReasonCannotLead : something of its own keeps the instance from leading; the message says what.
	ReasonCannotLead = "CannotLead"
	// ReasonMajorityLost : so many voters have lost their data that none can be elected; `kubectl plimsoll recover` shows what is left.
	ReasonMajorityLost = "MajorityLost"
	// ReasonLeaderSilent : the manager does not hear the leader, which the kubelet finds ready; check the network policies for port 7470.
	ReasonLeaderSilent = "LeaderSilent"
	// ReasonInstancesNotReady : some instances are not ready. See their messages in status.instances.
	ReasonInstancesNotReady = "InstancesNotReady"
	// ReasonSettled : nothing to do.
	ReasonSettled = "Settled"
	// ReasonPaused : set spec.maintenance.paused to false to let the operator act again.
	ReasonPaused = "Paused"
	// ReasonHibernated : set spec.maintenance.hibernated to false to start the instances again.
	ReasonHibernated = "Hibernated"
	// ReasonInvalidSpec : the spec breaks a rule that the message names; change it as the message says.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonInvalidAnnotation : an annotation of the Database holds what the message names; correct or remove it.
	ReasonInvalidAnnotation = "InvalidAnnotation"
	// ReasonSecretMissing : create the Secret, or the key, that the message names.
	ReasonSecretMissing = "SecretMissing"
	// ReasonIssuerNotReady : cert-manager, the issuer of spec.tls.issuerRef or its certificate is missing or not ready; do as the message says.
	ReasonIssuerNotReady = "IssuerNotReady"
	// ReasonSecretConflict : the Secret belongs to someone else; delete it, or choose another name for the Database.
	ReasonSecretConflict = "SecretConflict"
	// ReasonNameConflict : another object of a name that the Database needs belongs to someone else; delete it, or choose another name.
	ReasonNameConflict = "NameConflict"
	// ReasonVolumesExist : volumes of an earlier Database of this name exist; delete them, or choose another name.
	ReasonVolumesExist = "VolumesExist"
	// ReasonImagePull : an image cannot be pulled; correct spec.image, spec.version or spec.imagePullSecrets.
	ReasonImagePull = "ImagePull"
	// ReasonContainerFailed : a container of a pod does not start; correct spec.image or spec.version, or what `kubectl describe pod` names.
	ReasonContainerFailed = "ContainerFailed"
	// ReasonUnschedulable : no node has room; add nodes, lower spec.resources or relax spec.scheduling.
	ReasonUnschedulable = "Unschedulable"
	// ReasonServerFailed : a server does not start; `kubectl plimsoll logs` shows why.
	ReasonServerFailed = "ServerFailed"
	// ReasonVolumeFull : a volume is full; raise the size that the message names. Nobody else takes over for it.
	ReasonVolumeFull = "VolumeFull"
	// ReasonStandsStill : a replica applies nothing although its leader's log goes on; it is started again, and copied anew if that does not
	// help. Nothing to do; the instance's message says where it stands, and what it waits for.
	ReasonStandsStill = "StandsStill"
	// ReasonWritesLost : a change of the leader lost acknowledged writes, as it may where the Database was asked not to wait for replicas; see
	// status.handOvers.
	ReasonWritesLost = "WritesLost"
	// ReasonCopiedAnew : a replica that stood still is being copied anew; wait.
	ReasonCopiedAnew = "CopiedAnew"
	// ReasonReplayHeld : a query on a replica, or pg_wal_replay_pause(), keeps it from applying what it received; do as the instance's message says.
	ReasonReplayHeld = "ReplayHeld"
	// ReasonOutOfMemory : the kernel killed a process of a server, or its whole container, whose memory was at its limit; raise
	// spec.resources.limits.memory, or let each session use less.
	ReasonOutOfMemory = "OutOfMemory"
	// ReasonVolumeHangs : a volume takes no writes; look at its storage. Another instance leads meanwhile, where one can.
	ReasonVolumeHangs = "VolumeHangs"
	// ReasonMajority : enough members hold each acknowledged write.
	ReasonMajority = "Majority"
	// ReasonNoMajority : too few members are in step; writes wait (required) or are held by fewer members (preferred).
	ReasonNoMajority = "NoMajority"
	// ReasonAsynchronous : the Database was asked not to wait for replicas, or has only one instance.
	ReasonAsynchronous = "Asynchronous"
)

// Reasons of a Probe's conditions, beside those above.
const (
	// ReasonProbeOff : set spec.mode to Measure to have databases measured.
	ReasonProbeOff = "ProbeOff"
	// ReasonNoNodes : no node is chosen; correct spec.nodeSelector or spec.tolerations.
	ReasonNoNodes = "NoNodes"
	// ReasonNodesNotReady : some nodes are not measured, or not yet; status.nodes says why.
	ReasonNodesNotReady = "NodesNotReady"
	// ReasonNodesPartly : of some nodes not all connections are seen; status.nodes says which and why.
	ReasonNodesPartly = "NodesPartly"
)
