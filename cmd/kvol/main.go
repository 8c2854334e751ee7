package main

import (
	"os"

	"github.com/kvol/kvol/internal/host"
)

func main() {
	host.Main() // takes the process over when it was started as the helper
	os.Exit(Run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
