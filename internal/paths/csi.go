package paths

import (
	"crypto/sha256"
	"encoding/hex"
)

// HandleHash is the directory name of a staged CSI volume: the lower-case hex of
// the SHA-256 of its handle, which itself can be any text.
func HandleHash(handle string) string {
	sum := sha256.Sum256([]byte(handle))
	return hex.EncodeToString(sum[:])
}

// CSIInlineHandle is the handle that a kubelet makes for an inline CSI volume
// (pkg/volume/csi/csi_util.go, makeVolumeHandle).
func CSIInlineHandle(podUID, volume string) string { return "csi-" + HandleHash(podUID+volume) }

// CSIAttachmentID is the name of the VolumeAttachment of a volume on a node, and
// the attachmentID in vol_data.json, which is there even where nothing is attached.
func CSIAttachmentID(handle, driver, node string) string {
	return "csi-" + HandleHash(handle+driver+node)
}
