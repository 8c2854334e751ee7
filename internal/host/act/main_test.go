package act

import (
	"errors"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// bash runs a script as an operator would.
func bash(t *testing.T, script string) (code int, said string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "bash", "-c", script).CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), string(out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0, string(out)
}

func unmountAll(t *testing.T, path string) {
	t.Helper()
	if err := unix.Unmount(path, 0); err != nil {
		t.Fatal(err)
	}
}
