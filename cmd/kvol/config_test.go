package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvol/kvol/internal/api"
)

// configFile writes a configuration and gives the flag that names it.
func configFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPrecedence(t *testing.T) {
	path := configFile(t, "# ours\nroot-dir: /file\ntimeout: 7s\nprobe-timeout: 3s\nno-headers: true\nnode-name: \"5\"\n")
	t.Setenv("KVOL_PROBE_TIMEOUT", "4s")
	t.Setenv("KVOL_TIMEOUT", "8s")
	t.Setenv("KVOL_SORT_BY", "path") // no setting: it fits one command only
	_, a, code, stderr := parse(t, "ls --timeout 9s --config "+path)
	if code != 0 {
		t.Fatal(stderr)
	}
	if a.timeout != 9*time.Second || a.probeTimeout != 4*time.Second || a.rootDir != "/file" || !a.noHeaders ||
		a.nodeName != "5" || a.lockTimeout != 10*time.Second || a.sortBy != "" {
		t.Errorf("%+v", a.settings)
	}
	for name, want := range map[string]string{
		"timeout": "flag", "probe-timeout": "env KVOL_PROBE_TIMEOUT", "root-dir": "file " + path, "lock-timeout": "default",
	} {
		if a.origins[name] != want {
			t.Errorf("%s comes from %q, want %q", name, a.origins[name], want)
		}
	}
}

func TestConfigFromEnvironment(t *testing.T) {
	t.Setenv("KVOL_CONFIG", configFile(t, "root-dir: /file\n"))
	_, a, code, stderr := parse(t, "ls")
	if code != 0 || a.rootDir != "/file" {
		t.Errorf("%d %s %+v", code, stderr, a.settings)
	}
	t.Setenv("KVOL_CONFIG", "/nonexistent")
	if _, _, code, stderr = parse(t, "ls"); code != api.ExitUsage {
		t.Errorf("%d %s", code, stderr)
	}
}

func TestBadConfig(t *testing.T) {
	for text, want := range map[string]string{
		"root-dir: /a\nrootdir: /b\n":  `line 2: there is no setting "rootdir"`,
		"Root-Dir: /a\n":               `line 1: there is no setting "Root-Dir"`,
		"dry-run: true\n":              `line 1: there is no setting "dry-run"`,
		"lazy: true\n":                 `line 1: there is no setting "lazy"`,
		"columns: a\n":                 `line 1: there is no setting "columns"`,
		"root-dir: 5\n":                `line 1: the value of "root-dir" has to be a text`,
		"root-dir: [a]\n":              `line 1: the value of "root-dir" has to be a text`,
		"root-dir:\n":                  `line 1: the value of "root-dir" has to be a text`,
		"no-headers: \"true\"\n":       `line 1: the value of "no-headers" has to be true or false`,
		"timeout: soon\n":              `timeout is "soon", which is no duration`,
		"timeout: 0s\n":                "--timeout is 0s (file ",
		"color: red\n":                 `--color is "red" (file `,
		"- a\n":                        "line 1: it is not a map of settings",
		"a: [\n":                       "yaml: line 1",
		"root-dir: /a\nroot-dir: /b\n": "already",
		"\x00\x01":                     "yaml: control characters",
	} {
		_, _, code, stderr := parse(t, "ls --config "+configFile(t, text))
		if code != api.ExitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit code %d: %s", text, code, stderr)
		}
	}
	for name, value := range map[string]string{"KVOL_TIMEOUT": "x", "KVOL_NO_HEADERS": "maybe", "KVOL_COLOR": "red"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			if _, _, code, stderr := parse(t, "ls"); code != api.ExitUsage || !strings.Contains(stderr, "env "+name) {
				t.Errorf("exit code %d: %s", code, stderr)
			}
		})
	}
}

// An empty file, one of comments only, and an endless one.
func TestOddConfig(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "---\n", "{}\n"} {
		if _, _, code, stderr := parse(t, "ls --config "+configFile(t, text)); code != 0 {
			t.Errorf("%q: %s", text, stderr)
		}
	}
	if _, _, code, stderr := parse(t, "ls --config /dev/zero"); code != api.ExitUsage || !strings.Contains(stderr, "longer than") {
		t.Errorf("%d %s", code, stderr)
	}
}
