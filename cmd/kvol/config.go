package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/api"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"
	"go.yaml.in/yaml/v3"
)

const (
	defaultConfig = "/etc/kvol/config.yaml"
	maxConfig     = 1 << 20
	envPrefix     = "KVOL"
)

// load settles the global flags: the flag itself, then the environment, then the
// file, then the default. It is the only place that reads configuration.
func (s *settings) load(ctx context.Context, flags *pflag.FlagSet) error {
	v := viper.New()
	v.SetConfigType("yaml")
	v.SetEnvPrefix(envPrefix)
	v.SetEnvKeyReplacer(strings.NewReplacer("-", "_"))
	v.AutomaticEnv()
	s.origins = map[string]string{}
	if s.files == nil {
		s.files = &files{got: map[string][]byte{}}
	}

	explicit := flags.Changed("config")
	if env := os.Getenv(envName("config")); !explicit && env != "" {
		s.configFile, explicit = env, true
	}
	if err := s.readConfig(ctx, v, explicit, flags); err != nil {
		return err
	}
	var failed error
	flags.VisitAll(func(f *pflag.Flag) {
		if failed == nil && configurable(f) {
			failed = s.settle(v, f)
		}
	})
	if failed != nil {
		return failed
	}
	return s.check()
}

// perCommand are the global flags that fit one result and not the next, or that
// name the file itself, or are a risk, which is taken on the command line: neither
// the environment nor the file sets them. Nor do they set what only one command has.
var perCommand = []string{"config", "template", "columns", "list-columns", "sort-by", "null", "verbose", "assert-no-pods", "mount-namespace"}

func configurable(f *pflag.Flag) bool { return !slices.Contains(perCommand, f.Name) }

// settle gives one flag its value, checked as the flag itself would be.
func (s *settings) settle(v *viper.Viper, f *pflag.Flag) error {
	switch {
	case f.Changed:
		s.origins[f.Name] = "flag"
		return nil
	case os.Getenv(envName(f.Name)) != "":
		s.origins[f.Name] = "env " + envName(f.Name)
	case v.InConfig(f.Name):
		s.origins[f.Name] = "file " + s.configFile
	default:
		s.origins[f.Name] = "default"
		return nil
	}
	value := v.GetString(f.Name)
	if err := f.Value.Set(value); err != nil {
		return api.Errorf(api.ErrInput, "%s: %s is %q, which is no %s: %w",
			s.origins[f.Name], f.Name, value, f.Value.Type(), err).WithNext("correct it there, or give --%s", f.Name)
	}
	return nil
}

// readConfig reads the file, which need not be there unless it was named. A key
// that is no setting, or a value of the wrong type, is an error with its line: a
// typing error must not leave a safety setting at its default.
func (s *settings) readConfig(ctx context.Context, v *viper.Viper, explicit bool, flags *pflag.FlagSet) error {
	path := s.configFile
	bad := func(err error) error {
		return &api.Error{Path: path, Kind: api.ErrInput, Err: fmt.Errorf("the configuration file: %w", err),
			Next: "correct the file, or name another with --config"}
	}
	raw, err := within(ctx, path, func() ([]byte, error) {
		return s.files.read(path, func() ([]byte, error) { return readFile(path, maxConfig) })
	})
	if errors.Is(err, fs.ErrNotExist) && !explicit {
		return nil
	}
	if errors.Is(err, api.ErrTimeout) {
		return (&api.Error{Err: err}).WithNext("give a file as the configuration: --config FILE")
	}
	if err == nil && len(raw) > maxConfig {
		err = fmt.Errorf("it is longer than %d bytes", maxConfig)
	}
	if err != nil {
		return bad(err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		return bad(err)
	}
	if len(doc.Content) == 0 || doc.Content[0].Tag == "!!null" {
		return nil // nothing but comments
	}
	top := doc.Content[0]
	if top.Kind != yaml.MappingNode {
		return bad(fmt.Errorf("line %d: it is not a map of settings (name: value)", top.Line))
	}
	for i := 0; i+1 < len(top.Content); i += 2 {
		if err := checkSetting(top.Content[i], top.Content[i+1], flags); err != nil {
			return bad(err)
		}
	}
	if err := v.ReadConfig(bytes.NewReader(raw)); err != nil {
		return bad(err)
	}
	return nil
}

// checkSetting checks one key and the type of its value.
func checkSetting(key, value *yaml.Node, flags *pflag.FlagSet) error {
	f := flags.Lookup(key.Value)
	if f == nil || !configurable(f) {
		return fmt.Errorf("line %d: there is no setting %q", key.Line, key.Value)
	}
	want, text := "!!str", "a text (in quotes where it looks like a number)"
	if f.Value.Type() == "bool" {
		want, text = "!!bool", "true or false"
	}
	if value.Kind != yaml.ScalarNode || value.Tag != want {
		return fmt.Errorf("line %d: the value of %q has to be %s", value.Line, key.Value, text)
	}
	return nil
}

// check refuses values that no command can work with.
func (s *settings) check() error {
	for _, c := range []struct {
		name, value string
		allowed     []string
	}{
		{"color", s.color, []string{"auto", "always", "never"}},
		{"log-level", s.logLevel, []string{"debug", "info", "warn", "error"}},
	} {
		if !slices.Contains(c.allowed, c.value) {
			return api.Errorf(api.ErrUsage, "--%s is %q (%s); allowed are: %s",
				c.name, c.value, s.origins[c.name], strings.Join(c.allowed, ", "))
		}
	}
	if s.timeout < 0 || s.timeout == 0 && s.origins["timeout"] != "default" {
		return api.Errorf(api.ErrUsage, "--timeout is %s (%s); it has to be more than 0", s.timeout, s.origins["timeout"])
	}
	if s.probeTimeout <= 0 {
		return api.Errorf(api.ErrUsage, "--probe-timeout is %s (%s); it has to be more than 0", s.probeTimeout, s.origins["probe-timeout"])
	}
	if s.mountNamespace < 0 {
		return api.Errorf(api.ErrUsage, "--mount-namespace is %d, which is no process", s.mountNamespace)
	}
	if s.lockTimeout < 0 {
		return api.Errorf(api.ErrUsage, "--lock-timeout is %s (%s); it cannot be negative", s.lockTimeout, s.origins["lock-timeout"])
	}
	return nil
}

// unset says what a default stands for that is not a value.
var unset = map[string]string{"node-name": "(the host name)", "timeout": "(by command)"}

// settingList is the configuration as config view shows it.
func (s *settings) settingList(flags *pflag.FlagSet) *api.List[api.Setting] {
	var items []api.Setting
	flags.VisitAll(func(f *pflag.Flag) {
		if !configurable(f) {
			return
		}
		value := f.Value.String()
		if v, ok := unset[f.Name]; ok && s.origins[f.Name] == "default" {
			value = v
		}
		items = append(items, api.Setting{Name: f.Name, Value: value, Origin: s.origins[f.Name]})
	})
	return api.NewList("SettingList", items, nil)
}

func envName(flag string) string {
	return envPrefix + "_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// readFile reads a file of limited size: it may be a pipe, or endless. One byte
// more than the limit tells that it is longer.
func readFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f, limit)
}

func readAll(r io.Reader, limit int64) ([]byte, error) {
	return io.ReadAll(io.LimitReader(r, limit+1))
}
