// Command gotest runs "go test" and prints what it prints without -v. In CI it
// also fails when a test was skipped: there everything that a test needs is
// installed, and a skip would hide that it is not.
//
//	gotest [go test's arguments]
//	gotest [arguments of all] -- [of one] -- [of another]...
//
// The latter runs a "go test" for each list at the same time, so that a package whose
// tests are one after the other can be run in parts beside each other. The last line
// counts tests and subtests: "N passed, N failed, N skipped".
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
)

// event is a line of "go test -json"; see "go doc test2json".
type event struct {
	Action, Package, Test, Output string
}

func main() {
	code, err := run(os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
	}
	os.Exit(code)
}

func run(args []string, out io.Writer) (int, error) {
	s := summary{out: out, held: map[string]string{}}
	lists := split(args)
	errs := make([]error, len(lists))
	var wg sync.WaitGroup
	for i, list := range lists {
		wg.Go(func() { errs[i] = s.test(list) })
	}
	wg.Wait()
	s.close()
	if err := errors.Join(errs...); err != nil {
		return 1, err
	}
	if len(s.skipped) > 0 && os.Getenv("CI") != "" {
		return 1, fmt.Errorf("%d skipped, which CI does not allow", len(s.skipped))
	}
	return 0, nil
}

// split gives the arguments of each "go test".
func split(args []string) [][]string {
	lists := [][]string{nil}
	for _, arg := range args {
		if arg == "--" {
			lists = append(lists, slices.Clone(lists[0]))
			continue
		}
		lists[len(lists)-1] = append(lists[len(lists)-1], arg)
	}
	return lists[min(1, len(lists)-1):]
}

// test runs one "go test".
func (s *summary) test(args []string) error {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := s.read(pipe); err != nil {
		_ = cmd.Wait() // the first error is the one to tell
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("go test: %w", err)
	}
	return nil
}

// summary turns events into text as they come. What a test prints is held until
// it is known whether the test failed.
type summary struct {
	mu             sync.Mutex
	out            io.Writer
	held           map[string]string
	passed, failed int
	skipped        []string // "package test: reason"
}

func (s *summary) read(r io.Reader) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			s.line(line)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (s *summary) line(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var e event
	if json.Unmarshal([]byte(line), &e) != nil {
		fmt.Fprint(s.out, line) // go itself has something to say
		return
	}
	key := e.Package + " " + e.Test
	switch {
	case e.Action == "build-output", e.Action == "output" && e.Test == "":
		if e.Output != "PASS\n" && e.Output != "FAIL\n" {
			fmt.Fprint(s.out, e.Output)
		}
	case e.Action == "output":
		if !strings.HasPrefix(e.Output, "=== ") {
			s.held[key] += e.Output
		}
	case e.Test == "":
	case e.Action == "pass":
		s.passed++
		delete(s.held, key)
	case e.Action == "fail":
		s.failed++
		fmt.Fprint(s.out, s.held[key])
		delete(s.held, key)
	case e.Action == "skip":
		s.skipped = append(s.skipped, key+": "+strings.Join(strings.Fields(s.held[key]), " "))
		delete(s.held, key)
	}
}

// close prints what is left of tests that never ended, the skips and the count.
func (s *summary) close() {
	for key, text := range s.held {
		fmt.Fprintf(s.out, "%s did not end:\n%s", key, text)
	}
	for _, skip := range s.skipped {
		fmt.Fprintln(s.out, "skipped:", skip)
	}
	fmt.Fprintf(s.out, "%d passed, %d failed, %d skipped\n", s.passed, s.failed, len(s.skipped))
}
