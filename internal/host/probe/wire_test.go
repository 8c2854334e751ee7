package probe

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func FuzzParse(f *testing.F) {
	f.Add(request{1, "job", []byte("{}"), 5}.append(nil))
	f.Add(reply{ID: 7, Hung: 3, Result: []byte("x"), Err: &remoteError{Text: "no", Errno: 5}}.append(nil))
	f.Add([]byte{0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, body []byte) {
		if reqs, err := parseRequests(body); err == nil {
			var b []byte
			for _, r := range reqs {
				b = r.append(b)
			}
			if again, err := parseRequests(b); err != nil || !cmp.Equal(reqs, again) {
				t.Errorf("%v: %v became %v", err, reqs, again)
			}
		}
		if reps, err := parseReplies(body); err == nil {
			var b []byte
			for _, r := range reps {
				b = r.append(b)
			}
			if again, err := parseReplies(b); err != nil || len(reps) != len(again) {
				t.Errorf("%v: %v became %v", err, reps, again)
			}
		}
	})
}

// TestReaderTakesAnyCut: however the stream is cut up, the frames are the same.
func TestReaderTakesAnyCut(t *testing.T) {
	var stream []byte
	var want [][]byte
	for i := range 20 {
		r := request{ID: uint64(i), Job: "x", Args: bytes.Repeat([]byte{byte(i)}, i*i)}
		f, err := frame([]request{r, r}, 0)
		if err != nil {
			t.Fatal(err)
		}
		stream, want = append(stream, f...), append(want, f[headerSize:])
	}
	for _, size := range []int{1, 7, 8, 9, 100, len(stream)} {
		rest := stream
		r := newReader(func(buf, _ []byte) (int, int, int, error) {
			n := copy(buf[:min(size, len(buf))], rest)
			rest = rest[n:]
			return n, 0, 0, nil
		})
		var got [][]byte
		for {
			body, _, err := r.next()
			if err != nil {
				break
			}
			got = append(got, body)
		}
		if !cmp.Equal(got, want) {
			t.Errorf("cut to %d bytes: %d frames of %d, or others", size, len(got), len(want))
		}
	}
}
