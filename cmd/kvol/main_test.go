package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/testutil"
)

// TestMain lets the test binary be kvol itself where it is started by that name,
// and kvol's helper process.
func TestMain(m *testing.M) { testutil.Main(m, host.Main, beKvol) }

func beKvol() {
	if filepath.Base(os.Args[0]) == "kvol" {
		os.Exit(Run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
}
