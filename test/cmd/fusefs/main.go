// Command fusefs is the FUSE daemon of the tests as a program of its own, for the
// demo: KVOL_TEST_FUSE="MODE DELAY MOUNTPOINT" fusefs. It says "ready" and serves
// until it is killed.
package main

import (
	"fmt"
	"os"

	"github.com/kvol/kvol/internal/testutil"
)

func main() {
	testutil.FUSEDaemon()
	fmt.Fprintln(os.Stderr, "fusefs: KVOL_TEST_FUSE is not set")
	os.Exit(2)
}
