// Package exact is how a kvol tells another process of its own something: the helper, and
// what it becomes in another mount namespace.
//
// Names and paths are bytes to the kernel, and JSON has only text: it writes a byte that
// is none as U+FFFD, which may be the name of something else. Here a string comes out
// with every byte that it had.
package exact

import (
	"math"

	"github.com/fxamacker/cbor/v2"
)

var (
	encode, _ = cbor.EncOptions{String: cbor.StringToByteString, Time: cbor.TimeRFC3339Nano}.EncMode()
	decode, _ = cbor.DecOptions{
		ByteStringToString: cbor.ByteStringToStringAllowed, ByteStringToTime: cbor.ByteStringToTimeAllowed,
		MaxArrayElements: math.MaxInt32, MaxMapPairs: math.MaxInt32,
	}.DecMode()
)

// Marshal writes a value.
func Marshal(v any) ([]byte, error) { return encode.Marshal(v) }

// Unmarshal reads into what v points to.
func Unmarshal(raw []byte, v any) error { return decode.Unmarshal(raw, v) }
