package fixture

import (
	"io/ioutil" // refused
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

func f() {
	os.Stat("x")               // refused
	os.OpenFile("x")           // refused
	os.CreateTemp("x")         // refused
	os.MkdirAll("x")           // refused
	os.ReadDir("x")            // refused
	os.ReadFile("x")           // refused
	os.Readlink("x")           // refused
	os.WriteFile("x")          // refused
	os.Symlink("x")            // refused
	os.Link("x")               // refused
	os.Chmod("x")              // refused
	os.Chown("x")              // refused
	os.Lchown("x")             // refused
	os.Chtimes("x")            // refused
	os.Truncate("x")           // refused
	os.DirFS("x")              // refused
	os.CopyFS("x")             // refused
	os.Chdir("x")              // refused
	unix.Stat("x")             // refused
	unix.Fstatat("x")          // refused
	unix.Openat2("x")          // refused
	unix.Creat("x")            // refused
	unix.Mkdirat("x")          // refused
	unix.Mknodat("x")          // refused
	unix.Symlinkat("x")        // refused
	unix.Linkat("x")           // refused
	unix.Chmod("x")            // refused
	unix.Fchmodat("x")         // refused
	unix.Chown("x")            // refused
	unix.Lchown("x")           // refused
	unix.Fchownat("x")         // refused
	unix.Access("x")           // refused
	unix.Faccessat("x")        // refused
	unix.Readlinkat("x")       // refused
	unix.Truncate("x")         // refused
	unix.UtimesNanoAt("x")     // refused
	unix.Setxattr("x")         // refused
	unix.Statx("x")            // refused
	filepath.WalkDir("x")      // refused
	filepath.EvalSymlinks("x") // refused
	filepath.Glob("x")         // refused
	ioutil.ReadAll(nil)

	filepath.Join("a", "b")
	os.Getpid()
	_ = os.ErrNotExist
	_ = unix.O_RDONLY
}
