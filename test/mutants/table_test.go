package mutants

const (
	bindGo    = "internal/host/act/bind.go"
	filesGo   = "internal/host/act/files.go"
	fsgroupGo = "internal/host/act/fsgroup.go"
	mountGo   = "internal/host/act/mount.go"
	thingGo   = "internal/host/safefs/thing.go"
	runnerGo  = "internal/host/act/runner.go"
	unmountGo = "internal/host/act/unmount.go"
	localGo   = "internal/plugins/local/local.go"
	entryGo   = "internal/plugins/local/conformance_test.go"
	csiDir    = "internal/plugins/csi/"
	passGo    = "internal/plugins/plugintest/passthrough_test.go"
)

// block ends local's entry into the suite.
const block = "Block: true},\n\t\t},\n"

// mutants are named for what is taken out.
var mutants = []mutant{
	// done already
	{
		name: "bind sees that it is bound already", fails: "TestConformance/SetUpTwice/directory",
		edits: []edit{{bindGo, "if !mounted {\n\t\treturn false, \"\", r.holdsNothing", "if !mounted || true {\n\t\treturn false, \"\", r.holdsNothing"}},
	},
	{
		name: "mount sees that it is mounted already", fails: "TestConformance/SetUpTwice/ext4",
		edits: []edit{{mountGo, "if !mounted {\n\t\treturn false, \"\", r.holdsNothing", "if !mounted || true {\n\t\treturn false, \"\", r.holdsNothing"}},
	},
	{
		name: "rmdir sees that it is gone already", fails: "TestConformance/TearDownTwice/directory",
		edits: []edit{{filesGo, "return err == nil, \"\", err", "return false, \"\", err"}},
	},
	{
		name: "every stacked mount is popped", fails: "TestConformance/Stacked/directory",
		edits: []edit{{runnerGo, "for ; len(r.table.At(path)) > 0; n++ {", "for ; n < 1 && len(r.table.At(path)) > 0; n++ {"}},
	},

	// what is there is not what was asked for
	{
		name: "bind refuses where something else is mounted", fails: "TestConformance/SomethingElse/directory",
		edits: []edit{{bindGo, "if !same {", "if !same && false {"}},
	},
	{
		name: "mount refuses where something else is mounted", fails: "TestConformance/SomethingElse/ext4",
		edits: []edit{{mountGo, "if !same || top.Root", "if same && top.Root"}},
	},
	{
		name: "publish refuses a foreign global mount", fails: "TestConformance/SomethingElse/ext4",
		edits: []edit{{localGo, "case !same:", "case !same && false:"}},
	},
	{
		name: "a mount hides no data", fails: "TestConformance/HoldsData/directory",
		edits: []edit{{filesGo, "func (r *Runner) holdsNothing(dir string) error {", "func (r *Runner) holdsNothing(dir string) error {\n\tif true {\n\t\treturn nil\n\t}"}},
	},
	{
		name: "rmdir refuses data before it is tried", fails: "TestConformance/HoldsData/directory",
		edits: []edit{{filesGo, "if err == nil && len(names) > 0 {", "if false {"}},
	},
	{
		name: "removal is rmdir", fails: "TestConformance/HoldsData/directory",
		edits: []edit{
			{filesGo, "if err == nil && len(names) > 0 {", "if false {"},
			{filesGo, "err := r.Root.Rmdir(a.Path)", "err := os.RemoveAll(a.Path)"},
			{filesGo, "\t\"io/fs\"\n", "\t\"io/fs\"\n\t\"os\"\n"},
		},
	},
	{
		name: "only what the layout mounts is unmounted", fails: "TestConformance/Door",
		edits: []edit{{unmountGo, "MountKind() == api.KindOther {", "MountKind() == \"nothing\" {"}},
	},
	{
		name: "UnmountDevice refuses what is no global mount", fails: "TestConformance/ForeignMount/directory",
		edits: []edit{{localGo, "k.Kind != paths.GlobalMount || k.Plugin != paths.LocalPlugin || k.Rest != \"\"", "k.Kind == paths.None"}},
	},

	// who may write
	{
		name: "a read-only bind is read-only", fails: "TestConformance/ReadOnly/directory",
		edits: []edit{{bindGo, "attrs |= unix.MOUNT_ATTR_RDONLY", "attrs |= 0"}},
	},
	{
		name: "read-only stays read-only", fails: "TestConformance/ReadOnly/directory",
		edits: []edit{{bindGo, "if top.ReadOnly() != (a.ReadOnly || a.sourceReadOnly(r, source)) {", "if false {"}},
	},
	{
		name: "fsGroup follows no link", fails: "TestConformance/FSGroup/directory",
		edits: []edit{
			{thingGo, "fd, err := openPath(dir, name)", "fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_CLOEXEC, 0)"},
			{thingGo, "if info.MountID != t.mnt {", "if false {"},
		},
	},
	{
		name: "fsGroup crosses no mount", fails: "TestConformance/FSGroup/ext4",
		edits: []edit{{thingGo, "if info.MountID != t.mnt {", "if false {"}},
	},
	{
		name: "OnRootMismatch looks at the root alone", fails: "TestConformance/FSGroupOnRootMismatch/directory",
		edits: []edit{{fsgroupGo, "RootOnly: a.OnRootMismatch && !apply", "RootOnly: false"}},
	},
	{
		name: "a second pod's fsGroup is not applied", fails: "TestConformance/FSGroupOtherPod/directory",
		edits: []edit{{localGo, "other != \"\" {", "other != \"\" && false {"}},
	},

	// the door
	{
		name: "a dry run only records", fails: "TestConformance/DryRun/directory",
		edits: []edit{{runnerGo, "return r.record(a, s), nil", "_, err = a.do(ctx, r)\n\t\treturn r.record(a, s), err"}},
	},
	{
		name: "no action is begun after an interruption", fails: "TestConformance/Cancelled/directory",
		edits: []edit{{runnerGo, "if err := ctx.Err(); err != nil {", "if err := ctx.Err(); err != nil && false {"}},
	},
	{
		name: "a mount is verified", fails: "TestConformance/LyingTool/ext4",
		edits: []edit{{mountGo, "func (a Mount) verify(ctx context.Context, r *Runner, _ string) error {", "func (a Mount) verify(ctx context.Context, r *Runner, _ string) error {\n\tif true {\n\t\treturn nil\n\t}"}},
	},

	// what a plugin says of itself
	{
		name: "nil is supported by no plugin", fails: "TestConformance/SupportsNothing",
		edits: []edit{{localGo, "return spec != nil && spec.PersistentVolume != nil && spec.", "return spec == nil || spec.PersistentVolume != nil && spec."}},
	},
	{
		name: "two volumes have two names", fails: "TestConformance/VolumeName/directory",
		edits: []edit{{localGo, "return spec.Name(), nil", "return \"local\", nil"}},
	},
	{
		name: "a Mounter is no Unmounter", fails: "TestConformance/Types",
		edits: []edit{{localGo, "type unmounter struct {", "func (m *mounter) TearDown(context.Context, *act.Runner) error { return nil }\n\ntype unmounter struct {"}},
	},
	{
		name: "what the disk does not tell is not guessed", fails: "TestConformance/Reconstruct/directory",
		edits: []edit{{localGo, "return reconstructed(volumeName, \"\", ", "return reconstructed(volumeName, \"/mnt/\"+volumeName, "}},
	},
	{
		name: "a secret is not told", fails: "TestPassThrough/Secrets/directory", in: "internal/plugins/plugintest",
		edits: []edit{{passGo, "path := a.session(s.Name())", "path := a.session(s.Name())\n\ta.host.Warn(\"log in with \" + s.PersistentVolume.Spec.FlexVolume.Options[\"password\"])"}},
	},

	// what a daemon does
	{
		name: "what is stacked on a volume is popped before its driver is asked", fails: "TestConformance/Stacked/staged", in: csiDir,
		edits: []edit{{csiDir + "unpublish.go", "for n := len(run.Table().At(path)); n > 1; n-- {", "for n := 1; n > 1; n-- {"}},
	},
	{
		name: "a driver is not asked to take data away", fails: "TestConformance/HoldsData/staged", in: csiDir,
		edits: []edit{{csiDir + "unpublish.go", "if err != nil || !e.Present || e.Mounted {", "if true || err != nil || !e.Present || e.Mounted {"}},
	},
	{
		name: "what is attached is not attached again", fails: "TestFurtherVolumes/Attach/attached", in: csiDir,
		edits: []edit{{csiDir + "attach.go", "return d.attached(ctx, w.volume) }", "return false, nil }"}},
	},
	{
		name: "expanding expands", fails: "TestFurtherVolumes/NodeExpand/grows", in: csiDir,
		edits: []edit{{csiDir + "limits.go", "req.Secrets = revealed(secrets)", "return nil"}},
	},
	{
		name: "a volume counts against a limit that there is", fails: "TestConformance/Limits/staged", in: csiDir,
		edits: []edit{{csiDir + "limits.go", "return limitPrefix + w.driver", "return w.driver"}},
	},

	// skips
	{
		name: "a skip is needed", fails: "TestConformance/Name",
		edits: []edit{{entryGo, block, block + "\t\tSkip: map[string]string{\"Name\": \"it has none\"},\n"}},
	},
	{
		name: "a skip has a reason", fails: "TestConformance",
		edits: []edit{{entryGo, block, block + "\t\tSkip: map[string]string{\"Name\": \"\"},\n"}},
	},
}
