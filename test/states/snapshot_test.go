package states

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// snapshot is all of a node that a run may not change without a reason.
type snapshot struct {
	files  map[string]entry         // of the node's own file system, whatever is mounted
	memory map[int]map[string]entry // of the file systems in memory, by their place in node.tmpfs
	mounts map[int]mount
	loops  map[string]string
	procs  map[int]string
}

// mount is a line of the mount table.
type mount struct {
	id                                       int
	parent, dev, root, point, options, after string
}

func (m mount) String() string {
	return fmt.Sprintf("%s (mount %d, %s %s, %s)", m.point, m.id, m.dev, m.root, m.options)
}

func (n *node) snapshot() snapshot {
	s := snapshot{files: tree(n.view), memory: map[int]map[string]entry{}, mounts: n.mounts(), loops: map[string]string{}, procs: processes()}
	for path := range s.files {
		if below(path, n.dir+"/state") || below(path, n.dir+"/run") {
			delete(s.files, path)
		}
	}
	for i, t := range n.tmpfs {
		s.memory[i] = tree(t.view)
	}
	for dev, backing := range loops() {
		if strings.HasPrefix(backing, filepath.Dir(n.dir)+"/") {
			s.loops[dev] = backing
		}
	}
	return s
}

func below(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// tree reads a cloned file system; the names are those that it has on the node.
func tree(view *os.File) map[string]entry {
	all := map[string]entry{}
	base := fmt.Sprintf("/proc/self/fd/%d", view.Fd())
	must(filepath.WalkDir(base+"/.", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		e := entry{mode: info.Mode(), inode: st.Ino}
		switch {
		case info.Mode().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			e.text = string(b)
		case info.Mode()&fs.ModeSymlink != 0:
			if e.text, err = os.Readlink(path); err != nil {
				return err
			}
		case info.Mode()&fs.ModeDevice != 0:
			e.text = fmt.Sprint(st.Rdev)
		}
		all[view.Name()+strings.TrimSuffix(strings.TrimPrefix(path, base), "/.")] = e
		return nil
	}))
	return all
}

var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace

// mounts are those below the node's directory.
func (n *node) mounts() map[int]mount {
	text, err := os.ReadFile("/proc/self/mountinfo")
	must(err)
	all := map[int]mount{}
	for line := range strings.Lines(string(text)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 7)
		var id int
		_, err := fmt.Sscan(f[0], &id)
		must(err)
		if point := unescape(f[4]); below(point, n.dir) && point != n.dir {
			all[id] = mount{id, f[1], f[2], unescape(f[3]), point, f[5], f[6]}
		}
	}
	return all
}

// at are the mounts on a path.
func (s snapshot) at(path string) (all []mount) {
	for _, m := range s.mounts {
		if m.point == path {
			all = append(all, m)
		}
	}
	return all
}

// of says whether a file system is mounted anywhere.
func (s snapshot) of(dev uint64) bool {
	for _, m := range s.mounts {
		if m.dev == devNumber(dev) {
			return true
		}
	}
	return false
}

// processes are those of the worker's namespace, without it and those that ended.
func processes() map[int]string {
	all := map[int]string{}
	names, err := os.ReadDir("/proc")
	must(err)
	for _, name := range names {
		var pid int
		if _, err := fmt.Sscan(name.Name(), &pid); err != nil || pid == 1 {
			continue
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		text := string(stat)
		open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
		if state := text[end+2]; state == 'Z' {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // nobody else does, it was left to process 1
			continue
		}
		all[pid] = text[open : end+3]
	}
	return all
}
