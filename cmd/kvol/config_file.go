package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
	if err := s.parseConfig(raw, flags); err != nil {
		return nil, api.Errorf(api.ErrInput, "the configuration file: %w", err).At(path).
			WithNext("correct the file, or name another: --config FILE; the settings are listed by: kvol config view --config /dev/null")
	}
	return raw, nil
}

// bare is a system's error without the path, which is said already.
func bare(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}

func (s *settings) parseConfig(raw []byte, flags *pflag.FlagSet) error {
	if len(raw) > maxConfig {
		return fmt.Errorf("it is longer than %d bytes", maxConfig)
	}
	if err := checkText(raw); err != nil {
		return err
	}
	var doc, more yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(raw))
	switch err := d.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return fmt.Errorf("it is not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		return fmt.Errorf("line %d: a second document begins, and there is one configuration", more.Line)
	}
	if len(doc.Content) == 0 || doc.Content[0].Tag == "!!null" {
		return nil // nothing but comments
	}
	top := doc.Content[0]
	if top.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: it is not a map of settings (name: value)", top.Line)
	}
	first := map[string]int{}
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		if line := first[key.Value]; line > 0 {
			return fmt.Errorf("line %d: %q is there already, in line %d", key.Line, key.Value, line)
		}
		first[key.Value] = key.Line
		if err := s.checkEntry(key, value, flags); err != nil {
			return err
		}
	}
	return nil
}

// checkText refuses what the reader of YAML would, without a line.
func checkText(raw []byte) error {
	for n, line := range bytes.Split(raw, []byte("\n")) {
		if !utf8.Valid(line) {
			return fmt.Errorf("line %d: it is not text in UTF-8", n+1)
		}
		if i := bytes.IndexFunc(bytes.TrimSuffix(line, []byte("\r")), func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }); i >= 0 {
			return fmt.Errorf("line %d: it is not text: there is the control character 0x%02x", n+1, line[i])
		}
	}
	return nil
}

// checkEntry checks one key, the type of its value and the value. An alias is no text.
func (s *settings) checkEntry(key, value *yaml.Node, flags *pflag.FlagSet) error {
	f := flags.Lookup(key.Value)
	if key.Kind != yaml.ScalarNode || f == nil || !configurable(f) {
		return fmt.Errorf("line %d: there is no setting %q%s", key.Line, key.Value, s.stranger(key.Value, flags))
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
	case list:
		text = "a text, or a list of texts"
	}
	for _, item := range items {
		if item.Kind != yaml.ScalarNode || item.Tag != want {
			if f.Value.Type() == "duration" {
				text = "a time: " + times
			}
			return fmt.Errorf("line %d: the value of %q has to be %s", item.Line, key.Value, text)
		}
		if what := unfit(f, item.Value); what != "" {
			return fmt.Errorf("line %d: %s %q %s", item.Line, key.Value, item.Value, what)
		}
	}
	return nil
}
