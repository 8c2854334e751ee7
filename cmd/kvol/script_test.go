package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/testutil"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// TestScripts runs every script of test/scripts with the real kvol on real
// mounts; kvol's own directories are in the script's $WORK.
func TestScripts(t *testing.T) {
	testutil.Root(t)
	bin := t.TempDir()
	// Not os.Executable: in a chroot the file's own mount is of the namespace
	// outside, and the path that the kernel gives for it leads nowhere here.
	self, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(bin, "kvol")); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "../../test/scripts",
		WorkdirRoot:         testutil.TempDir(t),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", bin+":/usr/sbin:/usr/bin:/sbin:/bin")
			env.Setenv("ROOT", filepath.Join(env.WorkDir, "kubelet"))
			env.Setenv("KVOL_ROOT_DIR", filepath.Join(env.WorkDir, "kubelet"))
			env.Setenv("KVOL_STATE_DIR", filepath.Join(env.WorkDir, "state"))
			env.Setenv("KVOL_RUN_DIR", filepath.Join(env.WorkDir, "run"))
			env.Setenv("POD", "0a8e9c5e-3e0f-4bd5-8f4e-1c3ad3a0a1f2")
			env.Setenv("POD2", "7b1f04c4-9a53-4f4e-9a57-6a6a1b8a2d11")
			return os.MkdirAll(filepath.Join(env.WorkDir, "kubelet", "pods"), 0o750)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code": code, "loop": loop, "substitute": substitute, "bindmount": bindMount,
		},
	})
}

// code runs a program that has to end with an exit code: code 4 kvol detach x.
func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N program [args]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	switch err := ts.Exec(args[1], args[2:]...); {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	default:
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
	if errs := ts.ReadFile("stderr"); got > 0 && args[1] == "kvol" && !strings.Contains(errs, "next: ") &&
		(!strings.Contains(errs, `"next":"`) || strings.Contains(errs, `"next":""`)) {
		ts.Fatalf("a failure without a next step")
	}
}

// loop makes a loop device of a new image, with a file system when one is named,
// and puts its path into a variable: loop DISK 64M ext4.
func loop(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: loop VARIABLE SIZE [FSTYPE]")
	}
	img := ts.MkAbs(args[0] + ".img")
	ts.Check(ts.Exec("truncate", "-s", args[1], img))
	if len(args) > 2 {
		ts.Check(ts.Exec("mkfs."+args[2], "-q", img))
	}
	dev, err := testutil.AttachLoop(img)
	ts.Check(err)
	ts.Setenv(args[0], dev)
	ts.Defer(func() {
		if err := exec.Command("losetup", "-d", dev).Run(); err != nil {
			ts.Logf("losetup -d %s: %v", dev, err)
		}
	})
}

// substitute puts the values of variables into a file: substitute pv.yaml.
func substitute(ts *testscript.TestScript, neg bool, args []string) {
	for _, name := range args {
		raw, err := os.ReadFile(ts.MkAbs(name))
		ts.Check(err)
		text := os.Expand(string(raw), ts.Getenv)
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(text), 0o600))
	}
}

// bindmount mounts a directory on another; the end of the test takes it down.
func bindMount(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: bindmount SOURCE TARGET")
	}
	ts.Check(os.MkdirAll(ts.MkAbs(args[1]), 0o750))
	ts.Check(unix.Mount(ts.MkAbs(args[0]), ts.MkAbs(args[1]), "", unix.MS_BIND, ""))
}
