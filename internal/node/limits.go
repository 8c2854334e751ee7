package node

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/plugins"
)

// Limits counts the volumes that this node has against what it may have. A volume is
// counted once, however many pods have it; one that the disk does not name any more
// is told in a warning, since it counts all the same. plugin "" is any.
func Limits(ctx context.Context, h *host.Host, mgr *plugins.VolumePluginMgr, plugin string) (*api.List[api.Limit], error) {
	s, err := look(h)
	if err != nil {
		return nil, err
	}
	var items []api.Limit
	for _, p := range mgr.All() {
		limited, err := plugins.As[plugins.VolumePluginWithAttachLimits](p)
		if errors.Is(err, api.ErrNotSupported) || plugin != "" && plugin != p.GetPluginName() {
			continue
		}
		limits, err := limited.GetVolumeLimits(ctx)
		if err != nil {
			s.warnings = append(s.warnings, err.Error())
		}
		has := s.byLimit(limited)
		for key := range limits {
			has[key] = append(has[key], []string{}...) // also what nothing is counted against
		}
		for key, volumes := range has {
			limit, told := limits[key]
			state := api.Limited
			switch {
			case !told:
				state = api.LimitUnknown
				s.warnings = append(s.warnings, key+": nobody told the limit; is the driver running?")
			case limit == 0:
				state = api.Unlimited
			}
			slices.Sort(volumes)
			volumes = slices.Compact(volumes)
			items = append(items, api.Limit{
				Plugin: p.GetPluginName(), Key: key, Limit: limit, LimitState: state,
				Attached: len(volumes), Volumes: append([]string{}, volumes...),
			})
		}
	}
	slices.SortFunc(items, func(a, b api.Limit) int { return strings.Compare(a.Plugin+a.Key, b.Plugin+b.Key) })
	return api.NewList("LimitList", items, s.warnings), nil
}

// byLimit are a plugin's volumes on this node by the key that they count against.
func (s *snapshot) byLimit(p plugins.VolumePluginWithAttachLimits) map[string][]string {
	out := map[string][]string{}
	for _, at := range s.places {
		if at.Plugin != p.GetPluginName() {
			continue
		}
		r, err := reconstruct(p, at)
		if err != nil {
			if !errors.Is(err, api.ErrNotSupported) {
				s.warnings = append(s.warnings, "not counted: "+err.Error())
			}
			continue
		}
		name, err := p.GetVolumeName(r.Spec)
		if key := p.VolumeLimitKey(r.Spec); err == nil && key != "" {
			out[key] = append(out[key], name)
		}
	}
	return out
}
