package repo

import "regexp"

// rule forbids a way round a safety home. A rule applies to the files that are
// compiled into kvol: neither to tests nor to the packages that only tests import.
type rule struct {
	name string
	why  string
	// only are the folders or files that it applies to, all when empty; homes are
	// excepted.
	only, homes []string
	// names are forbidden uses "importpath.Name", where the end of Name may be "*";
	// "*.Name" is a method or field of whatever has one. imports are forbidden
	// import paths, literals forbidden string literals.
	names    []string
	imports  []string
	literals []*regexp.Regexp
}

var byString = []string{"internal/plugins", "internal/node", "internal/ops"}

// both names something of package syscall and of x/sys/unix.
func both(names ...string) []string {
	var out []string
	for _, n := range names {
		out = append(out, "golang.org/x/sys/unix."+n, "syscall."+n)
	}
	return out
}

func inOS(names ...string) []string {
	var out []string
	for _, n := range names {
		out = append(out, "os."+n)
	}
	return out
}

func literal(exprs ...string) []*regexp.Regexp {
	var out []*regexp.Regexp
	for _, e := range exprs {
		out = append(out, regexp.MustCompile(e))
	}
	return out
}

// toolTable only names tools, to say which package has a missing one.
const toolTable = "internal/host/exec/tools.go"

// rules are the safety homes' other side: what each home is for may be written
// nowhere else.
var rules = []rule{
	{
		name:  "delete",
		why:   "data is never deleted: rmdir and unlink of known metadata, by descriptor, in safefs",
		homes: []string{"internal/host/safefs"},
		names: append(inOS("Remove*", "Rename", "OpenRoot", "OpenInRoot"),
			both("Unlink*", "Rmdir", "Rename*", "SYS_UNLINK*", "SYS_RMDIR", "SYS_RENAME*")...),
	},
	{
		name:     "unmount",
		why:      "only what the layout makes and the mount table has is unmounted, by act",
		homes:    []string{"internal/host/act", toolTable},
		names:    append(both("Unmount", "SYS_UMOUNT2"), "k8s.io/mount-utils.UnmountMountPoint*"),
		literals: literal(`^(/\S*/)?umount2?( -.*)?$`),
	},
	{
		name:  "mount",
		why:   "every change to the node is an action that act records and verifies",
		homes: []string{"internal/host/act"},
		names: both("Mount", "MountSetattr", "MoveMount", "OpenTree", "Fsopen", "Fsmount", "PivotRoot", "SYS_MOUNT*", "SYS_MOVE_MOUNT"),
	},
	{
		name:    "exec",
		why:     "programs run with a deadline, in a process group, without secrets in argv: by exec, and the helper by probe",
		homes:   []string{"internal/host/exec", "internal/host/probe"},
		imports: []string{"os/exec", "k8s.io/utils/exec"},
		names:   append(inOS("StartProcess"), both("ForkExec", "StartProcess", "Exec", "SYS_EXECVE*")...),
	},
	{
		name:  "statfs",
		why:   "a look at a volume may hang for ever: only the helper process looks, or statx by descriptor in safefs",
		homes: []string{"internal/host/probe", "internal/host/exec", "internal/host/safefs"},
		names: append(both("Statfs", "Fstatfs", "Lstat", "SYS_STATFS"), "os.Lstat"),
	},
	{
		name: "path-by-string",
		why:  "plugins, node and ops open, state and make nothing by path: safefs does, by descriptor",
		only: byString,
		names: append(append(inOS("Stat", "Open*", "Create*", "Mkdir*", "ReadDir", "ReadFile", "Readlink", "WriteFile",
			"Symlink", "Link", "Chmod", "Chown", "Lchown", "Chtimes", "Truncate", "DirFS", "CopyFS", "Chdir"),
			both("Stat", "Fstatat*", "Open*", "Creat", "Mkdir*", "Mknod*", "Symlink*", "Link*", "Chmod", "Fchmodat*",
				"Chown", "Lchown", "Fchownat", "Access", "Faccessat*", "Readlink*", "Truncate", "Utimes*", "Setxattr")...),
			"golang.org/x/sys/unix.Statx", "path/filepath.Walk*", "path/filepath.EvalSymlinks", "path/filepath.Glob"),
		imports: []string{"io/ioutil"},
	},
	{
		name: "mount-utils",
		why:  "these stat a mount point, and so hang on a dead one, or format and delete past the homes",
		names: []string{
			"*.IsMountPoint", "*.IsLikelyNotMountPoint", "*.GetMountRefs", "*.FormatAndMount*", "*.MountSensitive*",
			"k8s.io/mount-utils.CleanupMount*", "k8s.io/mount-utils.PathExists", "k8s.io/mount-utils.New",
			"k8s.io/mount-utils.NewSafeFormatAndMount", "k8s.io/mount-utils.IsNotMountPoint", "k8s.io/mount-utils.HasMountRefs",
		},
	},
	{
		name:     "mount-table",
		why:      "one tolerant reader; Mounted opens and stats the path",
		homes:    []string{"internal/host/mounts"},
		names:    []string{"k8s.io/mount-utils.ListProcMounts", "k8s.io/mount-utils.ParseMountInfo"},
		imports:  []string{"github.com/moby/sys/mountinfo"},
		literals: literal(`\bproc(/\S+)?/mounts$`, `^/etc/mtab$`),
	},
	{
		name:  "mounted",
		why:   "it opens and stats the path, and hangs on a dead mount",
		names: []string{"github.com/moby/sys/mountinfo.Mounted*"},
	},
	{
		name:     "mkfs",
		why:      "only format makes a file system, after the blank proof",
		homes:    []string{"internal/host/format", toolTable},
		literals: literal(`^(/\S*/)?mkfs`, `^(/\S*/)?mke2fs$`, `^(/\S*/)?mkswap$`, `^(/\S*/)?wipefs$`, `^(/\S*/)?blkdiscard$`),
	},
	{
		name: "json",
		why:  "JSON has no bytes that are no text, so that a name would become another one: what kvol tells its own processes is package exact's",
		only: []string{"internal/host", "cmd/kvol/namespace.go"},
		// Records for people, and a secret's mask: no path that is in them is acted upon.
		homes:   []string{"internal/host/act/journal.go", "internal/host/format/intent.go", "internal/host/probe/memo.go", "internal/host/exec/secret.go"},
		imports: []string{"encoding/json"},
	},
	{
		name:     "shell",
		why:      "argv only: a shell would read a hostile name",
		literals: literal(`\b(ba|da|z)?sh -\w*c\b`, `^(/\S*/)(ba|da|z)?sh$`, `^(da|z)?sh$`),
	},
	{
		name:  "os-create",
		why:   "it truncates what is there: say O_EXCL, or write and rename",
		names: inOS("Create"),
	},
	{
		name:  "is-not-exist",
		why:   "they are blind to wrapped errors: errors.Is",
		names: inOS("IsNotExist", "IsExist", "IsPermission", "IsTimeout"),
	},
	{
		name:  "flag-library",
		why:   "flags, environment and file are read in one place",
		homes: []string{"cmd/kvol"},
		// Which file of cmd/kvol is TestViperHasOneFile.
		imports: []string{"github.com/spf13/viper", "flag"},
	},
}
