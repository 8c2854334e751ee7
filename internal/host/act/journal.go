package act

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/safefs"
)

// Journal is the record of what kvol changes: JSON lines, one entry each. It is in
// the state directory or, where that cannot be written, in the run directory, which
// is lost at the next boot. A nil root is one that could not be opened.
type Journal struct {
	State, Run *safefs.Root
}

// The journal is cut into numbered segments, so that no file is ever renamed or
// written over; the last two are kept.
const (
	segmentName = "journal-%06d.jsonl"
	segmentMax  = 4 << 20
)

// segments lists the journal's files in a directory, oldest first.
func segments(dir *safefs.Root) ([]int, error) {
	entries, err := dir.ReadDir(".")
	if err != nil {
		return nil, err
	}
	var out []int
	for _, e := range entries {
		var n int
		if _, err := fmt.Sscanf(e.Name, segmentName, &n); err == nil && e.Name == fmt.Sprintf(segmentName, n) {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out, nil
}

// openJournal opens the last segment for appending, or begins the next one.
func openJournal(dir *safefs.Root) (*os.File, error) {
	all, err := segments(dir)
	if err != nil {
		return nil, err
	}
	n := 1
	if len(all) > 0 {
		n = all[len(all)-1]
		info, err := dir.Stat(fmt.Sprintf(segmentName, n))
		if err != nil {
			return nil, err
		}
		if info.Size >= segmentMax {
			n++
		}
	}
	f, err := dir.OpenFile(fmt.Sprintf(segmentName, n), unix.O_RDWR|unix.O_APPEND|unix.O_CREAT, 0o600)
	if err != nil {
		return nil, err
	}
	for _, old := range all {
		if old < n-1 {
			err = errors.Join(err, dir.UnlinkOwn(fmt.Sprintf(segmentName, old)))
		}
	}
	return f, err
}

// Operation is one run of one mutating command in the journal.
type Operation struct {
	// Volatile says that the journal is not in the state directory, so that
	// nothing may be formatted.
	Volatile bool

	file   *os.File
	entry  api.Entry
	synced bool
	warn   func(string)
}

// Begin records that a command starts; e says which and of what. Without any
// journal mounts can still be removed, and nothing irreversible is done.
func (j Journal) Begin(e api.Entry, warn func(string)) *Operation {
	op := &Operation{entry: e, warn: warn}
	op.entry.Op, op.entry.PID = uuid.NewString(), os.Getpid()
	for _, dir := range []*safefs.Root{j.State, j.Run} {
		if op.begin(dir) {
			op.Volatile = dir != j.State
			break
		}
	}
	switch {
	case op.file == nil:
		op.Volatile = true
		warn("neither --state-dir nor --run-dir can be written: this is done without a history, and nothing that cannot be undone")
	case op.Volatile:
		warn("--state-dir cannot be written: the history goes to --run-dir, and nothing is formatted")
	}
	return op
}

// begin writes the first entry: a full disk opens well and refuses the first byte.
func (o *Operation) begin(dir *safefs.Root) bool {
	if dir == nil {
		return false
	}
	f, err := openJournal(dir)
	if err != nil {
		return false
	}
	o.file = f
	if o.append(api.Entry{Phase: "begin", Risks: o.entry.Risks}) != nil {
		f.Close()
		o.file = nil
		return false
	}
	return true
}

// Volume tells the journal what the operation turned out to be about.
func (o *Operation) Volume(plugin, volume, volumeName string) {
	if o != nil {
		o.entry.Plugin, o.entry.Volume, o.entry.VolumeName = plugin, volume, volumeName
	}
}

// Disk tells the journal which disk the volume is on; the entries from here on
// have it.
func (o *Operation) Disk(mark api.DiskMark) { o.entry.Device = &mark }

// Intent records a step before it is done. What cannot be undone needs the
// record on disk first; without a journal it is refused.
func (o *Operation) Intent(s api.Step, irreversible bool) error {
	err := o.write(api.Entry{Phase: "intent", N: s.N, Action: s.Action, Target: s.Target, Args: s.Args})
	if !irreversible || o.synced {
		return nil
	}
	if err == nil {
		err = o.file.Sync()
	}
	if err != nil {
		return api.Errorf(api.ErrRefused, "it cannot be undone and the journal cannot be written (%v)", err).
			WithNext("make room for --state-dir, or name another one")
	}
	o.synced = true
	return nil
}

// Outcome records how a step ended.
func (o *Operation) Outcome(s api.Step, value string, err error) {
	e := api.Entry{Phase: "outcome", N: s.N, Action: s.Action, Target: s.Target, Outcome: string(api.OutcomeOf(err))}
	if err != nil {
		e.Error = err.Error()
	}
	if value != "" {
		e.Args = []string{value}
	}
	_ = o.write(e) // it has warned; what was done is done
}

// End records how the command ended, and puts the journal on disk.
func (o *Operation) End(result api.Outcome, err error) {
	if o == nil {
		return
	}
	e := api.Entry{Phase: "end", Outcome: string(result)}
	if err != nil {
		e.Error = err.Error()
	}
	if o.write(e) == nil {
		if err := o.file.Sync(); err != nil {
			o.warn(fmt.Sprintf("the journal is not on disk: %v", err))
		}
	}
	if o.file != nil {
		o.file.Close()
	}
}

func (o *Operation) write(e api.Entry) error {
	if o.file == nil {
		return errors.New("neither --state-dir nor --run-dir can be written")
	}
	err := o.append(e)
	if err != nil {
		o.warn(fmt.Sprintf("the journal could not be written: %v", err))
	}
	return err
}

// append adds one entry in one write, which the kernel does not mix with another
// process's, and on a line of its own also after one that a full disk cut short.
func (o *Operation) append(e api.Entry) error {
	e.Time = time.Now().UTC()
	e.Op, e.Verb, e.Plugin, e.Volume, e.PodUID = o.entry.Op, o.entry.Verb, o.entry.Plugin, o.entry.Volume, o.entry.PodUID
	e.VolumeName, e.Device = o.entry.VolumeName, o.entry.Device
	if e.Phase == "begin" {
		e.PID, e.User = o.entry.PID, o.entry.User
	}
	var line bytes.Buffer
	if endsCut(o.file) {
		line.WriteByte('\n')
	}
	if err := api.AppendJSON(&line, e); err != nil {
		return err
	}
	line.WriteByte('\n')
	_, err := o.file.Write(line.Bytes())
	return err
}

// endsCut says that the last line of a file has no end.
func endsCut(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return false
	}
	var b [1]byte
	_, err = f.ReadAt(b[:], info.Size()-1)
	return err == nil && b[0] != '\n'
}

// ReadJournal gives the entries of the directories' journals, oldest first. A
// line that a crash or a full disk cut short is left out and counted. One directory's
// entries stay in the order in which they were written, whatever the clock did.
func ReadJournal(dirs ...*safefs.Root) (entries []api.Entry, bad int, err error) {
	type timed struct {
		api.Entry
		at time.Time
	}
	var all []timed
	for _, dir := range dirs {
		if dir == nil {
			continue
		}
		var last time.Time
		numbers, serr := segments(dir)
		err = errors.Join(err, serr)
		for _, n := range numbers {
			data, rerr := dir.ReadFile(fmt.Sprintf(segmentName, n), 4*segmentMax)
			if rerr != nil {
				err = errors.Join(err, rerr)
				continue
			}
			for line := range bytes.Lines(data) {
				var e api.Entry
				if line = bytes.TrimSpace(line); len(line) == 0 {
					continue
				}
				if json.Unmarshal(line, &e) != nil {
					bad++
					continue
				}
				if e.Time.After(last) {
					last = e.Time
				}
				all = append(all, timed{e, last})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b timed) int { return a.at.Compare(b.at) })
	for _, e := range all {
		entries = append(entries, e.Entry)
	}
	return entries, bad, err
}
