package e2e

import (
	"strings"
)

// words is a command line that needs nothing of the node.
func words(args ...string) func(*scene) []string {
	return func(*scene) []string { return args }
}

// badWords are words on the command line.
func badWords() []bad {
	return append([]bad{
		{name: "unknown command", make: words("setpu"), reason: "Usage", want: []string{`"setpu"`, "setup"}},
		{name: "unknown command of a command", make: words("config", "veiw"), reason: "Usage", want: []string{`"veiw"`, "view"}},
		{name: "unknown flag", make: words("list-mounts", "--al"), reason: "Usage", want: []string{"--al", "kvol list-mounts --help"}},
		{name: "unknown short flag", make: words("list-mounts", "-X"), reason: "Usage", want: []string{"'X'", "kvol list-mounts --help"}},
		{name: "argument too many", make: words("teardown", "a", "b"), reason: "Usage", want: []string{"VOLUME", "2", "kvol teardown --help"}},
		{name: "argument where there is none", make: words("setup", "data"), reason: "Usage", want: []string{`"data"`, "kvol setup --help"}},
		{name: "empty argument", make: words("teardown", ""), reason: "Usage", want: []string{"VOLUME", "empty"}},
		{name: "no volume", make: words("teardown"), reason: "Usage", want: []string{"no volume", "-f"}},
		{name: "no document", make: words("setup"), reason: "Usage", want: []string{"-f", "kubectl get pv"}},
		{name: "no pod", make: func(s *scene) []string { return s.up()[:3] }, reason: "Usage", want: []string{"no pod", "--pod-uid"}},
		{name: "no pod on the way down", make: words("unpublish", "pv"), reason: "Usage", want: []string{"no pod", "--pod-uid"}},
		{name: "volume and document disagree", make: func(s *scene) []string {
			return []string{"unmount-device", "other", "-f", s.pv("pv", s.outside+"/data")}
		}, reason: "Usage", want: []string{"other", "pv"}},
		{name: "volume and --volume disagree", make: words("teardown", "a", "--volume", "b", "--pod-uid", podA), reason: "Usage", want: []string{`"a"`, `"b"`, "--volume"}},
		{name: "paths and documents", make: words("paths", "/a", "-f", "-"), reason: "Usage", want: []string{"paths", "-f"}},
		{name: "path and a pod", make: words("paths", "/a", "--pod-uid", podA), reason: "Usage", want: []string{"--pod-uid", "-f"}},
		{name: "unknown output", make: words("list-mounts", "-o", "jsn"), reason: "Usage", want: []string{"jsn", "json"}, plain: true},
		{name: "shell of a list", make: words("list-mounts", "-o", "shell"), reason: "Usage", want: []string{"shell", "table"}, plain: true},
		{name: "shell of what is done", make: func(s *scene) []string { return s.up("-o", "shell") }, reason: "Usage", want: []string{"shell", "--dry-run"}, plain: true},
		{name: "unknown column", make: words("list-mounts", "--columns", "path,colour"), reason: "Usage", want: []string{"colour", "path"}, plain: true},
		{name: "unknown order", make: words("list-mounts", "--sort-by", "colour"), reason: "Usage", want: []string{"colour", "path"}},
		{name: "NULs in a table", make: words("list-mounts", "-0"), reason: "Usage", want: []string{"null", "name"}, plain: true},
		{name: "quiet and YAML", make: words("list-mounts", "-q", "-o", "yaml"), reason: "Usage", want: []string{"--quiet", "names only"}},
		{name: "negative time-out", make: words("list-mounts", "--timeout", "-1s"), reason: "Usage", want: []string{"--timeout", "-1s"}},
		{name: "no time at all", make: words("list-mounts", "--timeout", "0"), reason: "Usage", want: []string{"--timeout", "more than 0"}},
		{name: "time without a unit", make: words("list-mounts", "--timeout", "5"), reason: "Usage", want: []string{"--timeout", `"5"`, "500ms"}},
		{name: "negative time for a lock", make: words("list-mounts", "--lock-timeout", "-1s"), reason: "Usage", want: []string{"--lock-timeout", "-1s"}},
		{name: "no time for a probe", make: words("list-mounts", "--probe-timeout", "0s"), reason: "Usage", want: []string{"--probe-timeout", "0s"}},
		{name: "unknown level of logs", make: words("list-mounts", "--log-level", "loud"), reason: "Usage", want: []string{"--log-level", "loud", "debug"}},
		{name: "unknown colour", make: words("list-mounts", "--color", "blue"), reason: "Usage", want: []string{"--color", "blue", "never"}},
		{name: "kind of mount that there is not", make: words("list-mounts", "--kind", "volume"), reason: "Usage", want: []string{"--kind", "volume", "podVolume"}},
		{name: "state that there is not", make: words("list-mounts", "--state", "bad"), reason: "Usage", want: []string{"--state", "bad", "stale"}},
		{name: "time that is none", make: words("history", "--since", "yesterday"), reason: "Usage", want: []string{"--since", "yesterday"}},
		{name: "history of less than nothing", make: words("history", "--limit", "-1"), reason: "Usage", want: []string{"--limit", "-1"}},
		{name: "subject that nobody knows", make: words("inspect", "nobody"), reason: "NotFound", want: []string{"nobody", "kvol list-mounts"}},
		{name: "volume that must exist", make: words("teardown", "nobody", "--pod-uid", podA, "--must-exist"), reason: "NotFound", want: []string{"nobody", "--must-exist", "kvol list-mounts"}, began: true},
		{name: "--plugin of another volume", make: func(s *scene) []string {
			return []string{"unmount-device", "-f", s.pv("pv", s.outside+"/data"), "--plugin", "kubernetes.io/nfs"}
		}, reason: "Usage", want: []string{"kubernetes.io/nfs", "kubernetes.io/local-volume"}},
		{name: "--plugin that there is not", make: words("unmount-device", "pv", "--plugin", "kubernetes.io/nothing"), reason: "NoPlugin", want: []string{"kubernetes.io/nothing", "kvol plugins"}},
		{name: "--plugin with dots", make: words("unmount-device", "pv", "--plugin", "../../etc"), reason: "BadInput", want: []string{"../../etc", "kvol plugins"}},
		{name: "path with dots as volume", make: words("unmount-device", "/var/lib/kubelet/../../etc"), reason: "BadInput", want: []string{"/../../etc", ".."}},
		{name: "path with a newline as volume", make: words("unmount-device", "/a\nb"), reason: "BadInput", want: []string{`"/a\nb"`, "control"}},
		{name: "driver that is none", make: words("unmount-device", "../x^handle"), reason: "BadInput", want: []string{`"../x"`, "spec.csi.driver"}},
	}, badNames()...)
}

// badNames are names of pods and volumes on the command line, which cannot have a NUL.
func badNames() []bad {
	var out []bad
	for what, c := range map[string]struct{ value, want string }{
		"dots":               {"..", `".."`},
		"dots and slashes":   {"../../../etc", "../../../etc"},
		"a slash":            {"a/b", `"a/b"`},
		"a newline":          {"a\nb", `"a\nb"`},
		"a leading dash":     {"-rf", `"-rf"`},
		"300 bytes":          {strings.Repeat("a", 300), "255"},
		"invalid UTF-8":      {"a\xff", `"a\xff"`},
		"an escape sequence": {"\x1b[31m", `"\x1b[31m"`},
		"a change of side":   {"a\u202eb", `"a\u202eb"`},
	} {
		out = append(out,
			bad{name: "uid with " + what, reason: "BadInput", want: []string{c.want, "pod uid", "metadata.uid"},
				make: words("unpublish", "pv", "--pod-uid="+c.value)},
			bad{name: "uid beside a document with " + what, reason: "BadInput", want: []string{c.want, "pod uid", "metadata.uid"},
				make: func(s *scene) []string { return append(s.up()[:3], "--pod-uid="+c.value) }},
			bad{name: "volume with " + what, reason: "BadInput", want: []string{c.want, "volume name"},
				make: words("unpublish", "--pod-uid", podA, "--volume="+c.value)},
			bad{name: "--volume beside a document with " + what, reason: "BadInput", want: []string{c.want, "volume name"},
				make: func(s *scene) []string { return s.up("--volume=" + c.value) }},
		)
	}
	return append(out, bad{name: "uid that is empty", reason: "Usage", want: []string{"--pod-uid has an empty value"},
		make: words("unpublish", "pv", "--pod-uid=")})
}
