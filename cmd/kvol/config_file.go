package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// readConfig reads the file, which need not be there unless it was named. A key
// that is no setting, or a value that is none of it, is an error with its line: a
// typing error must not leave a safety setting at its default.
func (s *settings) readConfig(ctx context.Context, explicit bool, flags *pflag.FlagSet) ([]byte, error) {
	path := s.configFile
	raw, err := within(ctx, path, func() ([]byte, error) {
		return s.files.read(path, func() ([]byte, error) { return readFile(path, maxConfig) })
	})
	switch {
	case errors.Is(err, fs.ErrNotExist) && !explicit:
		return nil, nil
	case errors.Is(err, api.ErrTimeout):
		return nil, (&api.Error{Err: err}).WithNext("give a file as the configuration: --config FILE")
	case errors.Is(err, fs.ErrNotExist):
		return nil, api.Errorf(api.ErrInput, "the configuration file cannot be read: %w", bare(err)).At(path).
			WithNext("name the one that is meant: --config FILE")
	case err != nil:
		return nil, api.Errorf(api.ErrInput, "the configuration file cannot be read: %w", bare(err)).At(path).
			WithNext("see what is there (ls -ld %s), or name another: --config FILE", act.Quote(path))
	}
	return raw, faulty(path, s.parseConfig(raw, flags))
}

// fault is one thing that is wrong with the file; line 0 is all of it.
type fault struct {
	line int
	what error
}

func faultf(line int, format string, args ...any) fault {
	return fault{line, fmt.Errorf(format, args...)}
}

// mostFaults is how many are told: a file that is none of kvol's has one a line.
const mostFaults = 100

// faulty is the one error for all that is wrong with the file, by line.
func faulty(path string, faults []fault) error {
	if len(faults) == 0 {
		return nil
	}
	slices.SortStableFunc(faults, func(a, b fault) int { return a.line - b.line })
	err := api.Errorf(api.ErrInput, "the configuration file has %d faults", len(faults))
	for _, f := range faults[:min(len(faults), mostFaults)] {
		err.Details = append(err.Details, fmt.Sprintf("%s: %s", path, f))
	}
	if more := len(faults) - mostFaults; more > 0 {
		err.Details = append(err.Details, fmt.Sprintf("and %d more", more))
	}
	if len(faults) == 1 {
		err = api.Errorf(api.ErrInput, "the configuration file: %s", faults[0])
	}
	return err.At(path).
		WithNext("correct the file, or name another: --config FILE; the settings are listed by: kvol config view --config /dev/null")
}

func (f fault) String() string {
	if f.line == 0 {
		return f.what.Error()
	}
	return fmt.Sprintf("line %d: %s", f.line, f.what)
}

// bare is a system's error without the path, which is said already.
func bare(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}

// parseConfig gives all that is wrong with the file, as far as it can be read.
func (s *settings) parseConfig(raw []byte, flags *pflag.FlagSet) []fault {
	if len(raw) > maxConfig {
		return []fault{faultf(0, "it is longer than %d bytes", maxConfig)}
	}
	if faults := checkText(raw); len(faults) > 0 {
		return faults
	}
	d := yaml.NewDecoder(bytes.NewReader(raw))
	var faults []fault
	for documents := 0; ; documents++ {
		var doc yaml.Node
		switch err := d.Decode(&doc); {
		case errors.Is(err, io.EOF):
			return faults
		case err != nil:
			return append(faults, notYAML(err))
		case documents == 0:
			faults = s.checkDocument(&doc, flags)
		default:
			return append(faults, faultf(doc.Line, "a second document begins, and there is one configuration"))
		}
	}
}

// notYAML takes the line from the words of the parser.
func notYAML(err error) fault {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	var line int
	if n, scanErr := fmt.Sscanf(text, "line %d: ", &line); n == 1 && scanErr == nil {
		_, text, _ = strings.Cut(text, ": ")
	}
	return faultf(line, "it is not YAML: %s", text)
}

func (s *settings) checkDocument(doc *yaml.Node, flags *pflag.FlagSet) (faults []fault) {
	if len(doc.Content) == 0 || doc.Content[0].Tag == "!!null" {
		return nil // nothing but comments
	}
	top := doc.Content[0]
	if top.Kind != yaml.MappingNode {
		return []fault{faultf(top.Line, "it is not a map of settings (name: value)")}
	}
	first := map[string]int{}
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		if line := first[key.Value]; line > 0 {
			faults = append(faults, faultf(key.Line, "%q is there already, in line %d", key.Value, line))
			continue
		}
		first[key.Value] = key.Line
		faults = append(faults, s.checkEntry(key, value, flags)...)
	}
	return faults
}

// checkText refuses what the reader of YAML would, without a line.
func checkText(raw []byte) (faults []fault) {
	for n, line := range bytes.Split(raw, []byte("\n")) {
		control := bytes.IndexFunc(bytes.TrimSuffix(line, []byte("\r")), func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
		switch {
		case !utf8.Valid(line):
			faults = append(faults, faultf(n+1, "it is not text in UTF-8"))
		case control >= 0:
			faults = append(faults, faultf(n+1, "it is not text: there is the control character 0x%02x", line[control]))
		}
	}
	return faults
}

// checkEntry checks one key, the type of its value and the value. An alias is no text.
func (s *settings) checkEntry(key, value *yaml.Node, flags *pflag.FlagSet) (faults []fault) {
	f := flags.Lookup(key.Value)
	if key.Kind != yaml.ScalarNode || f == nil || !configurable(f) {
		return []fault{faultf(key.Line, "there is no setting %q%s", key.Value, s.stranger(key.Value, flags))}
	}
	_, list := f.Value.(pflag.SliceValue)
	items := []*yaml.Node{value}
	if list && value.Kind == yaml.SequenceNode {
		items = value.Content
	}
	want, text := "!!str", "a text (in quotes where it looks like a number)"
	switch {
	case f.Value.Type() == "bool":
		want, text = "!!bool", "true or false"
	case f.Value.Type() == "duration":
		text = "a time: " + times
	case list:
		text = "a text, or a list of texts"
	}
	for _, item := range items {
		if item.Kind != yaml.ScalarNode || item.Tag != want {
			faults = append(faults, faultf(item.Line, "the value of %q has to be %s", key.Value, text))
		} else if what := unfit(f, item.Value); what != "" {
			faults = append(faults, faultf(item.Line, "%s %q %s", key.Value, item.Value, what))
		}
	}
	return faults
}
