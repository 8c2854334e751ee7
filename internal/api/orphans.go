package api

import "time"

// Verdict says whether what was found on the node may go.
type Verdict string

// The verdicts of an OrphanList. Unknown is a verdict: nothing is done about it.
const (
	VerdictOrphan  Verdict = "orphan"
	VerdictLive    Verdict = "live"
	VerdictUnknown Verdict = "unknown"
)

// Evidence is what one source said of a pod or a volume.
type Evidence struct {
	Source string `json:"source"` // kubelet, cri, api, file, static, cgroup, process, mounts, metadata
	Says   string `json:"says"`   // alive, absent, silent
	Detail string `json:"detail"`
}

// What a source can say of a pod.
const (
	SaysAlive  = "alive"
	SaysAbsent = "absent"
	SaysSilent = "silent" // it did not answer, or cannot know
)

// OrphanKind is what was left behind.
type OrphanKind string

// The kinds of an OrphanList.
const (
	OrphanPodDir      OrphanKind = "podDir"
	OrphanGlobalMount OrphanKind = "globalMount"
	OrphanStaging     OrphanKind = "staging"
	OrphanBlockMap    OrphanKind = "blockMap"
	OrphanLoop        OrphanKind = "loop"
)

// What keeps something from going, as blockedBy has it.
const (
	BlockedByAge     = "age"     // it is younger than --min-age
	BlockedByKubelet = "kubelet" // a running kubelet may hold it in memory
	BlockedByData    = "data"    // it holds what is nobody's to delete
	BlockedByMount   = "mount"   // something else is mounted in it
	BlockedByBusy    = "busy"    // somebody uses it
	BlockedByDriver  = "driver"  // its driver has to be asked and does not answer
	BlockedByDevice  = "device"  // its device would have to be detached
	BlockedByPod     = "pod"     // a pod that has it stays
	BlockedByLock    = "lock"    // another kvol works on it
	BlockedByError   = "error"   // the attempt failed
)

// Stay is one thing of an orphan that does not go.
type Stay struct {
	Path      string `json:"path"`
	BlockedBy string `json:"blockedBy"`
	Reason    string `json:"reason"`
	Next      string `json:"next"`
}

// Orphan is one thing on the node whose pod may be gone.
type Orphan struct {
	Kind      OrphanKind `json:"kind"`
	Path      string     `json:"path"`
	Plugin    string     `json:"plugin"`
	Volume    string     `json:"volume"`
	PodUID    string     `json:"podUID"`
	PodName   string     `json:"podName"`
	Namespace string     `json:"namespace"`
	Since     time.Time  `json:"since"` // birth of its directory
	Verdict   Verdict    `json:"verdict"`
	Reason    string     `json:"reason"` // why that is the verdict, in a few words
	Evidence  []Evidence `json:"evidence"`
	BlockedBy string     `json:"blockedBy"` // why it, or some of it, does not go; empty when all of it can
	Next      string     `json:"next"`      // what the operator does about it
	Stays     []Stay     `json:"stays"`     // each thing that does not go
	Facts     []string   `json:"facts"`     // what the steps rest on: --from-plan compares them
	Steps     []Step     `json:"steps"`
	Outcome   string     `json:"outcome"` // an Outcome, empty in a plan
}

// OrphanPlan is what gc-orphans would do.
type OrphanPlan struct {
	*List[Orphan]
	// Plan has all the steps for the shell form.
	Plan *Plan `json:"-"`
}
