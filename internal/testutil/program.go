package testutil

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
)

// envPrograms is the directory of the programs that tests start. What is in it is not
// built again, also not by the processes that a test starts.
const envPrograms = "KVOL_TEST_PROGRAMS"

var programs sync.Mutex

// Program builds a program of this module, cmd/kvol, as kvol is released, static and
// stripped, and gives its path.
func Program(pkg string) (string, error) {
	programs.Lock()
	defer programs.Unlock()
	dir := os.Getenv(envPrograms)
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "kvol-programs"); err != nil {
			return "", err
		}
		AtExit(func() { os.RemoveAll(dir) })
		if err := os.Setenv(envPrograms, dir); err != nil {
			return "", err
		}
	}
	path := filepath.Join(dir, filepath.Base(pkg))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	_, self, _, _ := runtime.Caller(0)
	temp, err := os.MkdirTemp(dir, "new") // others may look for it at the same time
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temp)
	built := filepath.Join(temp, "program")
	cmd := exec.Command("go", "build", "-ldflags", "-s -w", "-o", built, "./"+pkg)
	cmd.Dir = filepath.Join(filepath.Dir(self), "../..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build ./%s: %w\n%s", pkg, err, out)
	}
	return path, os.Rename(built, path)
}
