package e2e

// config runs a command with a configuration file of its own.
func config(text string) func(*scene) []string {
	return func(s *scene) []string { return []string{"list-mounts", "--config", s.file("config.yaml", text)} }
}

// env runs a command with a word in the environment.
func env(word string) func(*scene) []string {
	return func(s *scene) []string {
		s.env = []string{word}
		return []string{"list-mounts"}
	}
}

// badSettings are the configuration file and the environment.
func badSettings() []bad {
	const in = "config.yaml"
	return []bad{
		{name: "config: unknown key", make: config("# mine\nroot_dir: /a\n"), reason: "BadInput", want: []string{in, "line 2", `"root_dir"`, "--config"}},
		{name: "config: what only a command has", make: config("lazy: true\n"), reason: "BadInput", want: []string{in, "line 1", `"lazy"`}},
		{name: "config: number for text", make: config("node-name: 7\n"), reason: "BadInput", want: []string{in, "line 1", `"node-name"`, "text"}},
		{name: "config: list for text", make: config("output: [json]\n"), reason: "BadInput", want: []string{in, "line 1", `"output"`, "text"}},
		{name: "config: text for truth", make: config("quiet: 'yes'\n"), reason: "BadInput", want: []string{in, "line 1", `"quiet"`, "true or false"}},
		{name: "config: time that is none", make: config("timeout: soon\n"), reason: "BadInput", want: []string{in, "line 1", "timeout", `"soon"`, "500ms"}},
		{name: "config: level that is none", make: config("log-level: loud\n"), reason: "BadInput", want: []string{in, "line 1", "log-level", "loud", "debug"}},
		{name: "config: a list", make: config("- a\n"), reason: "BadInput", want: []string{in, "line 1", "map"}},
		{name: "config: not YAML", make: config("a: [\n"), reason: "BadInput", want: []string{in, "not YAML", "line"}},
		{name: "config: a key twice", make: config("quiet: true\nquiet: false\n"), reason: "BadInput", want: []string{in, "quiet", "line 2", "line 1"}},
		{name: "config: binary", make: config("\x7fELF\x00\x01"), reason: "BadInput", want: []string{in, "line 1", "0x7f"}},
		{name: "config: bomb", make: config(yamlBomb()), reason: "BadInput", want: []string{in, "line 1"}},
		{name: "config: missing", make: words("list-mounts", "--config", "/nowhere/config.yaml"), reason: "BadInput", want: []string{"/nowhere/config.yaml", "no such file", "--config"}},
		{name: "config: missing, by the environment", make: env("KVOL_CONFIG=/nowhere/config.yaml"), reason: "BadInput", want: []string{"/nowhere/config.yaml", "no such file", "--config"}},
		{name: "config: directory", make: func(s *scene) []string { return []string{"list-mounts", "--config", s.outside} }, reason: "BadInput", want: []string{"outside", "directory"}},
		{name: "config: fifo that nobody writes", make: func(s *scene) []string {
			return []string{"list-mounts", "--timeout", "300ms", "--config", s.fifo("config.fifo")}
		}, reason: "Timeout", want: []string{"config.fifo", "--config"}},
		{name: "config: device without an end", make: words("list-mounts", "--config", "/dev/zero"), reason: "BadInput", want: []string{"/dev/zero", "longer than"}},
		{name: "environment: time that is none", make: env("KVOL_TIMEOUT=soon"), reason: "BadInput", want: []string{"KVOL_TIMEOUT", `"soon"`}},
		{name: "environment: truth that is none", make: env("KVOL_QUIET=perhaps"), reason: "BadInput", want: []string{"KVOL_QUIET", `"perhaps"`}},
		{name: "environment: output that there is not", make: env("KVOL_OUTPUT=jsn"), reason: "BadInput", want: []string{"KVOL_OUTPUT", "jsn"}, plain: true},
		{name: "environment: negative time", make: env("KVOL_LOCK_TIMEOUT=-1s"), reason: "BadInput", want: []string{"KVOL_LOCK_TIMEOUT", "-1s"}},
		{name: "environment: colour that is none", make: env("KVOL_COLOR=\x1b[31m"), reason: "BadInput", want: []string{"KVOL_COLOR", `\x1b[31m`}},
		{name: "proc that is none", make: func(s *scene) []string { return []string{"list-mounts", "--proc-root", s.outside} }, reason: "NotFound", want: []string{"outside", "mountinfo", "--proc-root"}},
		{name: "mount table that cannot be read", make: func(s *scene) []string {
			s.mkdir(s.dir + "/proc/self/mountinfo")
			return []string{"list-mounts", "--proc-root", s.dir + "/proc"}
		}, reason: "Failed", want: []string{"mountinfo", "directory"}},
	}
}
