package main

import (
	"time"

	"github.com/kvol/kvol/internal/host/kubelet"
	"github.com/kvol/kvol/internal/render"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// settings are the global flags once flags, environment and file are read.
type settings struct {
	configFile string

	rootDir, nodeName, stateDir, runDir string
	procRoot, sysRoot, devRoot          string
	mountNamespace                      int

	podsFrom                    []string
	csiEndpoint                 string
	runtimeEndpoint, kubeconfig string
	assertNoPods                bool

	output   string
	template string
	// format and templateText are what output and template come to.
	format           render.Format
	templateText     string
	allowMissingKeys bool
	columns          []string
	listColumns      bool
	sortBy           string
	noHeaders, null  bool
	ascii            bool
	color            string
	quiet            bool
	logLevel         string
	verbose          int

	timeout, probeTimeout, lockTimeout time.Duration

	files   *files
	tree    *cobra.Command    // all commands, for the flags that only some of them have
	origins map[string]string // by flag: flag, env KVOL_X, file PATH, default
}

// addFlags makes the flags that every command has.
func (s *settings) addFlags(f *pflag.FlagSet) {
	f.StringVar(&s.configFile, "config", defaultConfig, "configuration `FILE`; also KVOL_CONFIG")

	f.StringVar(&s.rootDir, "root-dir", kubelet.DefaultRoot, "the kubelet's root `DIR` (default: a running kubelet's own)")
	f.StringVar(&s.nodeName, "node-name", "", "this node's `NAME` (default: the kubelet's, else the host name)")
	f.StringVar(&s.stateDir, "state-dir", "/var/lib/kvol", "`DIR` where the journal is kept")
	f.StringVar(&s.runDir, "run-dir", "/run/kvol", "`DIR` where locks are kept")
	f.StringVar(&s.procRoot, "proc-root", "/proc", "`DIR` where proc is mounted")
	f.StringVar(&s.sysRoot, "sys-root", "/sys", "`DIR` where sysfs is mounted")
	f.StringVar(&s.devRoot, "dev-root", "/dev", "`DIR` where device nodes are")
	f.IntVar(&s.mountNamespace, "mount-namespace", 0, "work in the mount namespace of process `PID` (default: that of the kubelet)")

	f.StringSliceVar(&s.podsFrom, "pods-from", []string{"auto"}, "`SOURCES` of live pods: auto, or a list of kubelet, cri, api, static, file:PATH")
	f.StringVar(&s.csiEndpoint, "csi-endpoint", "", "`SOCKET` of the CSI driver (default: by its registration, else plugins/DRIVER/csi.sock)")
	f.StringVar(&s.runtimeEndpoint, "runtime-endpoint", "", "`SOCKET` of the container runtime (default: the kubelet's, else the usual ones)")
	f.StringVar(&s.kubeconfig, "kubeconfig", "", "`FILE` that says where the API server is (default: the kubelet's)")
	f.BoolVar(&s.assertNoPods, "assert-no-pods", false, "risk: your word that no pod lives on this node")

	f.StringVarP(&s.output, "output", "o", string(render.Table), "`FORMAT`: table, wide, json, jsonl, yaml, name, tree; with a template as in kubectl jsonpath=, jsonpath-as-json=, jsonpath-file=, go-template=, go-template-file=, custom-columns=, custom-columns-file=; shell for plans")
	f.StringVar(&s.template, "template", "", "`TEMPLATE`, or file of one, for an --output that takes it; by itself a go-template")
	f.BoolVar(&s.allowMissingKeys, "allow-missing-template-keys", true, "a template may name what is not there")
	f.StringSliceVar(&s.columns, "columns", nil, "`NAMES` of a table's columns: a,b or +a,b to add them")
	f.BoolVar(&s.listColumns, "list-columns", false, "list the columns that the command has, and do nothing else")
	f.StringVar(&s.sortBy, "sort-by", "", "`COLUMN` to order a list by, in every format")
	f.BoolVar(&s.noHeaders, "no-headers", false, "tables without headings")
	f.BoolVarP(&s.null, "null", "0", false, "end each name with a NUL; with -o name")
	f.BoolVar(&s.ascii, "ascii", false, "trees without box lines")
	f.StringVar(&s.color, "color", "auto", "`WHEN`: auto, always or never; NO_COLOR turns auto off")
	f.BoolVarP(&s.quiet, "quiet", "q", false, "names only for lists, nothing for verbs")

	f.StringVar(&s.logLevel, "log-level", "warn", "`LEVEL` of what goes to standard error: debug, info, warn, error")
	f.CountVarP(&s.verbose, "verbose", "v", "log more: info, -vv debug")

	f.DurationVar(&s.timeout, "timeout", 0, "time for the whole command (default: attach, mount-device, setup 5m, other verbs 2m, reading 10s)")
	f.DurationVar(&s.probeTimeout, "probe-timeout", time.Second, "time for one file system to answer")
	f.DurationVar(&s.lockTimeout, "lock-timeout", 10*time.Second, "how long to wait for another kvol")
}
