package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvol/kvol/internal/api"

	"golang.org/x/sys/unix"
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
		"root-dir: /a\nrootdir: /b\n":         `line 2: there is no setting "rootdir"; did you mean root-dir?`,
		"Root-Dir: /a\n":                      `line 1: there is no setting "Root-Dir"; did you mean root-dir?`,
		"probeTimeout: 1s\n":                  `there is no setting "probeTimeout"; did you mean probe-timeout?`,
		"colour: never\n":                     `there is no setting "colour"; did you mean color?`,
		"nothing: like\n":                     "there is no setting \"nothing\"\nnext: ",
		"<<: {root-dir: /a}\n":                `line 1: there is no setting "<<"`,
		"? [a, b]\n: c\n":                     `line 1: there is no setting ""`,
		"dry-run: true\n":                     `line 1: there is no setting "dry-run": --dry-run is about one command, and is given with it`,
		"columns: a\n":                        `line 1: there is no setting "columns": --columns is about one command, and is given with it`,
		"lazy: true\n":                        `line 1: there is no setting "lazy": --lazy is a risk, which is taken anew each time, on the command line`,
		"assert-no-pods: true\n":              `--assert-no-pods is a risk`,
		"config: /a\n":                        `--config names the file itself`,
		"root-dir: 5\n":                       `line 1: the value of "root-dir" has to be a text`,
		"root-dir: [a]\n":                     `line 1: the value of "root-dir" has to be a text`,
		"root-dir:\n":                         `line 1: the value of "root-dir" has to be a text`,
		"root-dir: &a /x\nrun-dir: *a\n":      `line 2: the value of "run-dir" has to be a text`,
		"\npods-from: {a: b}\n":               `line 2: the value of "pods-from" has to be a text, or a list of texts`,
		"pods-from:\n- cri\n- 5\n":            `line 3: the value of "pods-from" has to be a text, or a list of texts`,
		"no-headers: \"true\"\n":              `line 1: the value of "no-headers" has to be true or false`,
		"probe-timeout: 1\n":                  `line 1: the value of "probe-timeout" has to be a time: 500ms, 10s or 2m`,
		"probe-timeout: \"1\"\n":              `line 1: probe-timeout "1" is no time: write 500ms, 10s or 2m`,
		"timeout: soon\n":                     `line 1: timeout "soon" is no time`,
		"# ours\ntimeout: 0s\n":               `line 2: timeout "0s" has to be more than 0`,
		"lock-timeout: -1s\n":                 `line 1: lock-timeout "-1s" cannot be negative`,
		"color: blue\n":                       `line 1: color "blue" is none of: auto, always, never`,
		"log-level: loud\n":                   `line 1: log-level "loud" is none of: debug, info, warn, error`,
		"output: xml\n":                       `line 1: output "xml" is none of: table, wide, json, jsonl`,
		"- a\n":                               "line 1: it is not a map of settings",
		"plain\n":                             "line 1: it is not a map of settings",
		"a: [\n":                              "line 1: it is not YAML: did not find",
		"root-dir:\t/a\n\trun-dir: /b\n":      "line 2: it is not YAML: found a tab",
		"root-dir: /a\n\nroot-dir: /b\n":      `line 3: "root-dir" is there already, in line 1`,
		"root-dir: /a\n---\nrun-dir: /b\n":    "a second document begins",
		"root-dir: /a\n# \xff\n":              "line 2: it is not text in UTF-8",
		"\x00\x01":                            "line 1: it is not text: there is the control character 0x00",
		"root-dir: /a\nrun-dir: /\x1b[2J\n":   "line 2: it is not text: there is the control character 0x1b",
		"r\x00o\x00o\x00t\x00":                "line 1: it is not text",
		strings.Repeat("# long\n", maxConfig): "longer than",
	} {
		path := configFile(t, text)
		_, _, code, stderr := parse(t, "ls --config "+path)
		if code != api.ExitUsage || !strings.Contains(stderr, want) || !strings.HasPrefix(stderr, "kvol: "+path+": the configuration file: ") {
			t.Errorf("%.60q: exit code %d: %s", text, code, stderr)
		}
	}
}

// All that is wrong is told at once, by line; what comes after what is no YAML is not known.
func TestEveryFaultOfConfig(t *testing.T) {
	for text, want := range map[string][]string{
		"rootdir: /a\ncolor: blue\n\ntimeout: 5\nlazy: true\ncolor: red\nlog-level: loud\n": {
			`line 1: there is no setting "rootdir"; did you mean root-dir?`,
			`line 2: color "blue" is none of: auto, always, never`,
			`line 4: the value of "timeout" has to be a time: 500ms, 10s or 2m`,
			`line 5: there is no setting "lazy": --lazy is a risk, which is taken anew each time, on the command line`,
			`line 6: "color" is there already, in line 2`,
			`line 7: log-level "loud" is none of: debug, info, warn, error`,
		},
		"pods-from: [5, a, {b: c}]\nnothing: like\n---\nrootdir: /a\n": {
			`line 1: the value of "pods-from" has to be a text, or a list of texts`,
			`line 1: the value of "pods-from" has to be a text, or a list of texts`,
			`line 2: there is no setting "nothing"`,
			`line 3: a second document begins, and there is one configuration`,
		},
		"colour: never\n--- [\n": {
			`line 1: there is no setting "colour"; did you mean color?`,
			`line 2: it is not YAML: did not find expected node content`,
		},
		"root-dir: /\x00\n# \xff\nrootdir: /a\n": {
			`line 1: it is not text: there is the control character 0x00`,
			`line 2: it is not text in UTF-8`,
		},
	} {
		path := configFile(t, text)
		for _, command := range []string{"ls", "config view"} {
			_, _, code, stderr := parse(t, command+" --config "+path)
			all := fmt.Sprintf("kvol: %s: the configuration file has %d faults\n", path, len(want))
			for _, fault := range want {
				all += "  " + path + ": " + fault + "\n"
			}
			if text, next, _ := strings.Cut(stderr, "next: "); code != api.ExitUsage || text != all || !strings.HasPrefix(next, "correct the file") {
				t.Errorf("%s: exit code %d: %s", command, code, stderr)
			}
		}
	}
	_, _, _, stderr := parse(t, "ls --config "+configFile(t, strings.Repeat("- a\x00\n", mostFaults+3)))
	if !strings.Contains(stderr, " has 103 faults\n") || !strings.Contains(stderr, "\n  and 3 more\nnext: ") || strings.Contains(stderr, "line 101:") {
		t.Error(stderr)
	}
}

// A file that is none, or cannot be read, is named once, with what the system says.
func TestUnreadableConfig(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{
		dir:           dir + ": the configuration file cannot be read: is a directory\nnext: see what is there (ls -ld " + dir + ")",
		dir + "/none": "cannot be read: no such file or directory",
		dir + "/l":    "cannot be read: too many levels of symbolic links",
		"/dev/zero":   "longer than",
		"":            "--config names no file",
	} {
		if path == dir+"/l" {
			if err := os.Symlink("l", path); err != nil {
				t.Fatal(err)
			}
		}
		_, _, code, stderr := parse(t, "ls --config="+path)
		if code != api.ExitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit code %d: %s", path, code, stderr)
		}
	}
	fifo := dir + "/fifo"
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, code, stderr := parse(t, "ls --timeout 50ms --config "+fifo)
	if code != api.ExitUncertain || !strings.Contains(stderr, "fifo: nothing came in time\nnext: give a file") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// A variable says which it is; an empty one is as if it were not there.
func TestBadEnvironment(t *testing.T) {
	for name, c := range map[string][2]string{
		"KVOL_TIMEOUT":       {"x", `env KVOL_TIMEOUT: timeout "x" is no time: write 500ms, 10s or 2m`},
		"KVOL_PROBE_TIMEOUT": {"0s", `env KVOL_PROBE_TIMEOUT: probe-timeout "0s" has to be more than 0`},
		"KVOL_NO_HEADERS":    {"maybe", `no-headers "maybe" has to be true or false`},
		"KVOL_COLOR":         {"red", `color "red" is none of: auto, always, never`},
		"KVOL_PODS_FROM":     {`a"b`, `pods-from "a\"b" is no list`},
		"KVOL_OUTPUT":        {"xml", `output "xml" is none of: table`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, c[0])
			_, _, code, stderr := parse(t, "ls")
			if code != api.ExitUsage || !strings.Contains(stderr, c[1]) || !strings.Contains(stderr, "(unset "+name+")") {
				t.Errorf("exit code %d: %s", code, stderr)
			}
			t.Setenv(name, "")
			if _, a, code, stderr := parse(t, "ls"); code != 0 || stderr != "" || a.origins["timeout"] != "default" {
				t.Errorf("empty: exit code %d: %s", code, stderr)
			}
		})
	}
}

// What looks like a setting and is none is told; what is somebody else's is not.
func TestStrangeVariables(t *testing.T) {
	for name, want := range map[string]string{
		"KVOL_ROOTDIR": "KVOL_ROOTDIR sets nothing; did you mean KVOL_ROOT_DIR?", "KVOL_ROOT": "did you mean KVOL_ROOT_DIR?",
		"KVOL_COLOUR": "did you mean KVOL_COLOR?", "KVOL_root_dir": "did you mean KVOL_ROOT_DIR?",
		"KVOL_LAZY": "KVOL_LAZY sets nothing: --lazy is a risk", "KVOL_SORT_BY": "--sort-by is about one command",
		"KVOL_SERVICE_HOST": "", "KVOL_PORT_80_TCP": "", "KVOL_MY_OWN": "", "KVOL": "", "KVOL_CONFIG": "", "KVOL_ASCII": "",
	} {
		t.Run(name, func(t *testing.T) {
			value := map[string]string{"KVOL_CONFIG": "/dev/null", "KVOL_ASCII": "true"}[name]
			t.Setenv(name, cmp.Or(value, "x"))
			_, _, code, stderr := parse(t, "ls")
			if code != 0 || !strings.Contains(stderr, want) || want == "" && stderr != "" {
				t.Errorf("exit code %d: %s", code, stderr)
			}
			if _, _, _, stderr := parse(t, "ls -o json"); stderr != "" {
				t.Errorf("beside JSON: %s", stderr)
			}
		})
	}
}

// What is right, in whatever way it is written.
func TestOddConfig(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "---\n", "{}\n", "# ü\n", "\ufeffquiet: true\n"} {
		if _, _, code, stderr := parse(t, "ls --config "+configFile(t, text)); code != 0 {
			t.Errorf("%q: %s", text, stderr)
		}
	}
	_, a, code, stderr := parse(t, "ls --config "+configFile(t, "root-dir: /file\r\nprobe-timeout: 4s\r\npods-from:\r\n- cri\r\n- file:/a,b\r\noutput: jsonpath={.items}\r\nlock-timeout: 0s\r\n"))
	if code != 0 || a.rootDir != "/file" || a.probeTimeout != 4*time.Second || a.lockTimeout != 0 || !slices.Equal(a.podsFrom, []string{"cri", "file:/a,b"}) {
		t.Errorf("%d %s %+v", code, stderr, a.settings)
	}
	_, a, _, _ = parse(t, "ls --config "+configFile(t, "pods-from: kubelet,cri\n"))
	if !slices.Equal(a.podsFrom, []string{"kubelet", "cri"}) {
		t.Errorf("%+v", a.podsFrom)
	}
}
