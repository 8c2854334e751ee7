package api

// LimitState says what the limit of a Limit is.
type LimitState string

// The states of a limit.
const (
	Limited      LimitState = "limited"
	Unlimited    LimitState = "unlimited" // the driver sets none
	LimitUnknown LimitState = "unknown"   // nobody told
)

// Limit is how many volumes of one kind this node may have, and how many it has.
type Limit struct {
	Plugin string `json:"plugin"`
	// Key is the node's allocatable resource: attachable-volumes-csi-<driver>.
	Key        string     `json:"key"`
	Limit      int64      `json:"limit"`      // 0 where it is not limited
	LimitState LimitState `json:"limitState"` // unlimited: the driver sets none; unknown: nobody told
	Attached   int        `json:"attached"`
	Volumes    []string   `json:"volumes"` // what is counted, by the plugin's name for it
}
