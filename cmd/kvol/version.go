package main

import (
	"context"
	"runtime"
	"runtime/debug"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/render"

	"github.com/spf13/cobra"
)

// Set by the build: -ldflags "-X main.version=v1.2.3 -X main.commit=… -X main.date=…".
var version, commit, date string

const versionLong = `Tells the version of kvol; with -o wide, json or yaml also the commit, the date, the
Go version and the platform that it was built for.`

const versionExample = `  kvol version
  kvol version -o json`

type versionOptions struct{}

func newVersionCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Tell the version of kvol",
		Long:    versionLong + exitCodes(selfCodes...),
		Example: versionExample,
		GroupID: about,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.do(cmd, readLimit, &versionOptions{})
		},
	}
}

func (o *versionOptions) run(_ context.Context, a *app) error {
	return showDocument(a, render.Version(), func() (*api.VersionInfo, error) { return built(), nil })
}

// built is what the build was told, or what Go knows of it.
func built() *api.VersionInfo {
	v := &api.VersionInfo{
		APIVersion: api.Version, Kind: "VersionInfo", Version: version, Commit: commit, Date: date,
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if v.Version == "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && v.Commit == "":
			v.Commit = s.Value
		case s.Key == "vcs.time" && v.Date == "":
			v.Date = s.Value
		}
	}
	return v
}
