package api

// Limit is how many volumes of one kind this node may have, and how many it has.
type Limit struct {
	Plugin string `json:"plugin"`
	// Key is the node's allocatable resource: attachable-volumes-csi-<driver>.
	Key      string   `json:"key"`
	Limit    int64    `json:"limit"` // 0 where there is none, or nobody told
	Attached int      `json:"attached"`
	Volumes  []string `json:"volumes"` // what is counted, by the plugin's name for it
}
