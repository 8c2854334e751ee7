package api

import "time"

// EventType says what happened to an item of a list that is watched.
type EventType string

// The types of a MountEvent.
const (
	EventAdded    EventType = "added"    // also what there was when the watch began
	EventModified EventType = "modified" // another mount, state or owner
	EventRemoved  EventType = "removed"  // neither mount nor directory is there any more
)

// MountEvent is a change of what list-mounts lists (kvol list-mounts --watch).
type MountEvent struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Type       EventType `json:"type"`
	Time       time.Time `json:"time"`   // when it was seen
	Object     Mount     `json:"object"` // as it is now; of what was removed as it was last seen
}

// Condition is what is waited for.
type Condition string

// The conditions of a Wait.
const (
	ConditionMounted   Condition = "mounted"
	ConditionUnmounted Condition = "unmounted"
	ConditionAttached  Condition = "attached"
	ConditionHealthy   Condition = "healthy"
)

// Wait is what became of waiting for one subject (kvol wait).
type Wait struct {
	Subject     string    `json:"subject"`
	SubjectKind string    `json:"subjectKind"` // volume, path, device, pod
	Condition   Condition `json:"condition"`
	PodUID      string    `json:"podUID"` // the pod that is meant, of a volume that several may have
	Met         bool      `json:"met"`
	Reason      string    `json:"reason"` // why it is not met
	Mounts      []Mount   `json:"mounts"` // what there is of it now
}
