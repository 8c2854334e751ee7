package main

import (
	"log/slog"

	"k8s.io/klog/v2"
)

// logger writes to standard error. Beside JSON there is none unless it was asked
// for, so that the last line of standard error is the error document.
func (a *app) logger() *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(a.logLevel)) // check has seen it
	switch {
	case a.verbose > 1:
		level = min(level, slog.LevelDebug)
	case a.verbose == 1:
		level = min(level, slog.LevelInfo)
	}
	options := &slog.HandlerOptions{Level: level}
	switch {
	case !isJSON(a.output):
		return slog.New(slog.NewTextHandler(a.stderr, options))
	case a.verbose > 0 || a.origins["log-level"] != "default":
		return slog.New(slog.NewJSONHandler(a.stderr, options))
	}
	return slog.New(slog.DiscardHandler)
}

// adoptLogs sends what libraries log the same way: mount-utils and apimachinery
// write to klog, which would write to standard error by itself.
func (a *app) adoptLogs() {
	slog.SetDefault(a.log)
	klog.SetSlogLogger(a.log)
}
