package testutil

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Partitioned is [LoopImage] with one partition on the device, which the kernel shows.
func Partitioned(t testing.TB, sizeBytes int64) (dev, part string) {
	t.Helper()
	Tool(t, "sfdisk", "partx")
	dev, _ = LoopImage(t, sizeBytes)
	f, err := os.OpenFile(dev, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if err == nil {
		info.Flags |= unix.LO_FLAGS_PARTSCAN
		err = unix.IoctlLoopSetStatus64(int(f.Fd()), info)
	}
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sfdisk", "-q", dev)
	cmd.Stdin = strings.NewReader("label: dos\n2048,,L\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("sfdisk: %v: %s", err, out)
	}
	run(t, "partx", "-u", dev) // the kernel may be built without any kind of partition table
	part = dev + "p1"
	Poll(t, part+" is there", func() bool { _, err := os.Stat(part); return err == nil })
	return dev, part
}
