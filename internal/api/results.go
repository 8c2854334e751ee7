// Package api has what kvol says to the outside: the results of its commands
// with their JSON, the kinds of failure, and the exit codes. The JSON is the
// interface that scripts rely on: fields and values are added, never changed or
// taken away. Core string fields are always present, empty when unknown.
//
// It is a leaf: it imports the standard library only. Do not put behaviour here.
package api

import (
	"fmt"
	"time"
)

// Version is the apiVersion of every document.
const Version = "kvol/v1"

// List is the envelope of every list. Items is never null in JSON.
type List[T any] struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Items      []T      `json:"items"`
	Warnings   []string `json:"warnings"`
}

// NewList wraps items; kind is the whole word, "MountList".
func NewList[T any](kind string, items []T, warnings []string) *List[T] {
	if items == nil {
		items = []T{}
	}
	if warnings == nil {
		warnings = []string{}
	}
	return &List[T]{APIVersion: Version, Kind: kind, Items: items, Warnings: warnings}
}

// MountKind says what a path of the layout is.
type MountKind string

// The kinds of MountList.
const (
	KindPodVolume       MountKind = "podVolume"
	KindGlobalMount     MountKind = "globalMount"
	KindPodDevice       MountKind = "podDevice"
	KindGlobalMapDevice MountKind = "globalMapDevice"
	KindSubPath         MountKind = "subPath"
	KindOther           MountKind = "other"
)

// State is the health of what is at a path.
type State string

// The states of MountList. Unmounted is said only where the plugin mounts: a
// directory that is plain by design is ok.
const (
	StateOK           State = "ok"
	StateStale        State = "stale"        // the file system answers with an error (ESTALE, EIO)
	StateDisconnected State = "disconnected" // its server or daemon is gone (ENOTCONN, EHOSTDOWN)
	StateUnresponsive State = "unresponsive" // no answer within --probe-timeout
	StateDenied       State = "denied"       // EACCES, EPERM: alive, but not for us
	StateReadOnly     State = "readonly"     // the superblock turned read-only under a read-write mount
	StateDeleted      State = "deleted"      // what was bound there is unlinked
	StateUnmounted    State = "unmounted"
	StateUnknown      State = "unknown"
)

// Owner says whether the pod of a path is alive.
type Owner string

// The owners of MountList.
const (
	OwnerLive    Owner = "live"
	OwnerGone    Owner = "gone"
	OwnerUnknown Owner = "unknown"
)

// Mount is one item of a MountList.
type Mount struct {
	Kind        MountKind `json:"kind"`
	Path        string    `json:"path"`
	Plugin      string    `json:"plugin"`
	Volume      string    `json:"volume"`
	PodUID      string    `json:"podUID"`
	PodName     string    `json:"podName"`
	Namespace   string    `json:"namespace"`
	Source      string    `json:"source"`
	FSType      string    `json:"fsType"`
	Options     []string  `json:"options"`
	ReadOnly    bool      `json:"readOnly"`
	MountID     int       `json:"mountID"` // 0 where nothing is mounted
	Device      string    `json:"device"`  // major:minor of the file system; of the node for podDevice and globalMapDevice
	Root        string    `json:"root"`    // the directory of the file system that is mounted
	Mounted     bool      `json:"mounted"`
	Stacked     int       `json:"stacked"` // how many mounts lie on this path
	State       State     `json:"state"`
	StateReason string    `json:"stateReason"`
	Owner       Owner     `json:"owner"`
	// The sizes are those that the file system itself tells when it is asked how it
	// is. Without a capacity they are not known; with one, what is left out is 0.
	CapacityBytes  int64 `json:"capacityBytes,omitempty"`
	UsedBytes      int64 `json:"usedBytes,omitempty"`
	AvailableBytes int64 `json:"availableBytes,omitempty"`
}

// PathSet says where a volume is, or would be, on this node. A path that this
// volume does not have is empty.
type PathSet struct {
	Plugin           string   `json:"plugin"`
	Volume           string   `json:"volume"`
	PodVolumePath    string   `json:"podVolumePath"`
	PodDeviceMapPath string   `json:"podDeviceMapPath"`
	GlobalMountPath  string   `json:"globalMountPath"`
	GlobalMapPath    string   `json:"globalMapPath"`
	Metadata         []string `json:"metadata"`
}

// PathInfo says what one path below the root is (kvol paths PATH).
type PathInfo struct {
	Path      string `json:"path"`
	Kind      string `json:"kind"` // a kind of internal/paths, "none" where it is nothing of a volume
	Plugin    string `json:"plugin"`
	Volume    string `json:"volume"`
	PodUID    string `json:"podUID"`
	Container string `json:"container"`
	Index     int    `json:"index"` // of a subpath; -1 elsewhere
	Driver    string `json:"driver"`
	Rest      string `json:"rest"` // what lies deeper than the path of that kind
}

// Step is one change to the node, done or planned.
type Step struct {
	N      int      `json:"n"`
	Action string   `json:"action"`
	Target string   `json:"target"`
	Args   []string `json:"args"`
	Shell  string   `json:"shell"` // the same in bash, empty where there is no such form
	Reason string   `json:"reason"`
	// Values are those of a file that is rebuilt (kvol recover).
	Values []FileValue `json:"values,omitempty"`
}

// String names the step in a message; of a call to a daemon the method says what it is.
func (s Step) String() string {
	what := s.Action
	if what == "call" && len(s.Args) > 0 {
		what += " " + s.Args[0]
	}
	return fmt.Sprintf("%d %s %s", s.N, what, s.Target)
}

// FileValue is a key of a file that is rebuilt, and who tells its value.
type FileValue struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	From  string `json:"from"`
}

// Plan is what --dry-run gives: the steps, and for the shell form the facts
// that they rest on and the step that has no shell form.
type Plan struct {
	*List[Step]
	// Facts are shell tests that hold now and that the steps rely on.
	Facts []string `json:"-"`
	// NoShell names the first step that has no shell form, "" where all have one;
	// where there are Parts they tell.
	NoShell string `json:"-"`
	// Parts are the steps by volume and rung, where the plan is of verbs.
	Parts []PlanPart `json:"-"`
}

// PlanPart is one rung of a plan for one volume.
type PlanPart struct {
	Rung   string
	Volume string
	PodUID string
	// Word names the volume on a command line, or among the documents.
	Word  string
	Steps []Step
	// Verb is the verb that does this rung and those after it, where they need what
	// only it hands on from one to the next: attaching gives a publish context. "" is
	// none.
	Verb string
	// Command does the same where a step has no shell form; "" where it was not
	// asked for.
	Command string
}

// Outcome is how a verb ended for one volume.
type Outcome string

// The outcomes of a Result.
const (
	OutcomeDone      Outcome = "done"
	OutcomeAlready   Outcome = "already"
	OutcomeSkipped   Outcome = "skipped"
	OutcomeRefused   Outcome = "refused"
	OutcomeFailed    Outcome = "failed"
	OutcomeUncertain Outcome = "uncertain"
)

// OutcomeOf is the outcome of what ended with an error, in agreement with its exit
// code; nil is done.
func OutcomeOf(err error) Outcome {
	switch ExitCode(err) {
	case ExitOK:
		return OutcomeDone
	case ExitUncertain:
		return OutcomeUncertain
	case ExitRefused, ExitBusy:
		return OutcomeRefused
	}
	return OutcomeFailed
}

// Result is what one rung of a verb did for one volume.
type Result struct {
	Op         string  `json:"op"`
	Plugin     string  `json:"plugin"`
	Volume     string  `json:"volume"`
	PodUID     string  `json:"podUID"`
	Paths      PathSet `json:"paths"`
	DevicePath string  `json:"devicePath"`
	Outcome    Outcome `json:"outcome"`
	Reason     string  `json:"reason"` // why it was skipped or refused, or what came of it; empty otherwise
	// OldSize and NewSize are the bytes of a volume before and after it was expanded.
	OldSize int64  `json:"oldSize,omitempty"`
	NewSize int64  `json:"newSize,omitempty"`
	Steps   []Step `json:"steps"`
}

// Info is what a plugin says of itself (kvol plugins).
type Info struct {
	Name        string   `json:"name"`
	Description string   `json:"description"`
	AccessModes []string `json:"accessModes"`
	Rungs       []string `json:"rungs"` // "DeviceMountable", "Block", …
	Tools       []Tool   `json:"tools"`
	Since       string   `json:"since"` // the Kubernetes release that brought it, "" when unknown
	Until       string   `json:"until"` // the last release that had it in tree, "" when it still has
}

// Tool is a program that a plugin runs.
type Tool struct {
	Name    string `json:"name"`
	Path    string `json:"path"` // empty when it is not on this node
	Needed  string `json:"needed"`
	Present bool   `json:"present"`
}

// Entry is one line of the journal (kvol history).
type Entry struct {
	Time   time.Time `json:"time"`
	Op     string    `json:"op"` // identifies one run of one command
	Verb   string    `json:"verb"`
	Phase  string    `json:"phase"` // begin, intent, outcome, end
	Plugin string    `json:"plugin,omitempty"`
	Volume string    `json:"volume,omitempty"`
	// VolumeName is what the plugin calls the volume: "driver^handle".
	VolumeName string    `json:"volumeName,omitempty"`
	PodUID     string    `json:"podUID,omitempty"`
	N          int       `json:"n,omitempty"`
	Action     string    `json:"action,omitempty"`
	Target     string    `json:"target,omitempty"`
	Args       []string  `json:"args,omitempty"`
	Outcome    string    `json:"outcome,omitempty"`
	Error      string    `json:"error,omitempty"`
	Risks      []string  `json:"risks,omitempty"` // the risk flags that were given
	PID        int       `json:"pid,omitempty"`
	User       string    `json:"user,omitempty"`
	Device     *DiskMark `json:"device,omitempty"` // the disk that the volume was on, once it is known
}

// DiskMark tells a disk from another one that got its number.
type DiskMark struct {
	Number  string `json:"number"`  // major:minor
	DiskSeq uint64 `json:"diskSeq"` // 0 before Linux 5.15
	BootID  string `json:"bootID"`
}

// Operation is one run of a mutating command as the history tells it.
type Operation struct {
	Time    time.Time `json:"time"`
	ID      string    `json:"id"`
	Verb    string    `json:"verb"`
	Plugin  string    `json:"plugin"`
	Volume  string    `json:"volume"`
	PodUID  string    `json:"podUID"`
	Outcome string    `json:"outcome"` // an Outcome, or "interrupted" when it never came to its end
	Error   string    `json:"error"`
	Risks   []string  `json:"risks"`
	User    string    `json:"user"`
	PID     int       `json:"pid"`
	Steps   []Step    `json:"steps"`
}

// Inspection is everything about one volume, path or pod (kvol inspect).
type Inspection struct {
	APIVersion  string     `json:"apiVersion"`
	Kind        string     `json:"kind"`
	Subject     string     `json:"subject"`
	SubjectKind string     `json:"subjectKind"` // volume, path, pod, device
	Path        *PathInfo  `json:"path,omitempty"`
	Volumes     []PathSet  `json:"volumes"`
	Specs       []SpecInfo `json:"specs"`
	Mounts      []Mount    `json:"mounts"`
	Devices     []Device   `json:"devices"`
	Metadata    []Metadata `json:"metadata"`
	Plugins     []Info     `json:"plugins"`
	Warnings    []string   `json:"warnings"`
}

// SpecInfo is what the disk tells of a volume's spec.
type SpecInfo struct {
	Plugin  string            `json:"plugin"`
	Volume  string            `json:"volume"`
	PodUID  string            `json:"podUID"`
	Fields  map[string]string `json:"fields"`  // by their path in the object: "spec.local.path"
	Missing []string          `json:"missing"` // the fields that the disk does not tell
}

// Device is one link of the chain under a mount, the file system's device first.
type Device struct {
	Name    string   `json:"name"`   // sda1
	Path    string   `json:"path"`   // /dev/sda1
	Number  string   `json:"number"` // major:minor
	Type    string   `json:"type"`   // disk part loop dm md
	Size    int64    `json:"size"`   // bytes
	Backing string   `json:"backing"`
	Parents []string `json:"parents"`
	Holders []string `json:"holders"`
}

// Metadata is a file that the kubelet or kvol keeps beside a volume.
type Metadata struct {
	Path  string            `json:"path"`
	State string            `json:"state"` // ok, empty, broken, missing
	Data  map[string]string `json:"data"`  // without secrets
}

// Setting is one configuration value (kvol config view).
type Setting struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Origin string `json:"origin"` // flag, env KVOL_X, file PATH, default
}

// VersionInfo is kvol's own version.
type VersionInfo struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Version    string `json:"version"`
	Commit     string `json:"commit"`
	Date       string `json:"date"`
	Go         string `json:"go"`
	Platform   string `json:"platform"`
}
