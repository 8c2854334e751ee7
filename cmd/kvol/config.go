package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/api"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"
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
	if s.configFile == "" {
		return api.Errorf(api.ErrUsage, "--config names no file").WithNext("name one, or /dev/null for none")
	}
	raw, err := s.readConfig(ctx, explicit, flags)
	if err == nil {
		err = v.ReadConfig(bytes.NewReader(raw))
	}
	if err != nil {
		return err
	}
	var failed error
	flags.VisitAll(func(f *pflag.Flag) {
		if failed == nil && configurable(f) {
			failed = s.settle(v, f)
		}
	})
	if failed == nil && s.mountNamespace < 0 {
		failed = api.Errorf(api.ErrUsage, "--mount-namespace is %d, which is no process", s.mountNamespace)
	}
	return failed
}

// perCommand are the global flags that fit one result and not the next, or that
// name the file itself, or are a risk, which is taken on the command line: neither
// the environment nor the file sets them. Nor do they set what only one command has.
var perCommand = []string{"config", "template", "columns", "list-columns", "sort-by", "null", "verbose", "assert-no-pods", "mount-namespace"}

func configurable(f *pflag.Flag) bool { return !slices.Contains(perCommand, f.Name) }

// settle gives one flag its value. What is in the file has been checked.
func (s *settings) settle(v *viper.Viper, f *pflag.Flag) error {
	env := envName(f.Name)
	switch value := os.Getenv(env); {
	case f.Changed:
		s.origins[f.Name] = "flag"
		if what := unfit(f, f.Value.String()); what != "" && f.Name != "output" { // which the command checks
			return api.Errorf(api.ErrUsage, "--%s %q %s", f.Name, f.Value, what)
		}
	case value != "": // an empty one is as if it were not set
		s.origins[f.Name] = "env " + env
		if what := unfit(f, value); what != "" {
			return api.Errorf(api.ErrInput, "env %s: %s %q %s", env, f.Name, value, what).
				WithNext("correct it there (unset %s), or give --%s", env, f.Name)
		}
		return f.Value.Set(value)
	case v.InConfig(f.Name):
		s.origins[f.Name] = "file " + s.configFile
		if list, ok := f.Value.(pflag.SliceValue); ok && !isText(v.Get(f.Name)) {
			return list.Replace(v.GetStringSlice(f.Name))
		}
		return f.Value.Set(v.GetString(f.Name))
	default:
		s.origins[f.Name] = "default"
	}
	return nil
}

// fromFlag is the rank of what is given on the command line.
const fromFlag = 3

// rank orders where settings come from: what is nearer to the command says more.
func (s *settings) rank(name string) int {
	switch origin, _, _ := strings.Cut(s.origins[name], " "); {
	case origin == "flag", name == "output" && s.template != "":
		return fromFlag
	case origin == "env":
		return 2
	case origin == "file":
		return 1
	}
	return 0
}

func isText(v any) bool {
	_, ok := v.(string)
	return ok
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
		if list, ok := f.Value.(pflag.SliceValue); ok {
			value = strings.Join(list.GetSlice(), ",")
		}
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
