package alive

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kvol/kvol/internal/api"
)

// askStatic reads the manifests of static pods. What a manifest's pod is called on
// disk is not in it (a hash that differs from release to release), so that it only
// names pods that others have to know. What cannot be read as a pod stands for one.
func (l *look) askStatic(ctx context.Context) answer {
	dir := l.config.StaticPodPath
	names, err := l.files.Names(ctx, dir)
	switch {
	case errors.Is(err, api.ErrNotFound):
		return answer{note: "no manifests: there is no " + dir}
	case err != nil:
		return answer{err: err}
	}
	slices.Sort(names)
	a := answer{note: api.Count(len(names), "manifest", "manifests") + " in " + dir}
	for _, name := range names {
		if strings.HasPrefix(name, ".") {
			continue // as the kubelet does
		}
		path := filepath.Join(dir, name)
		file, err := l.files.Read(ctx, path)
		if errors.Is(err, api.ErrNotFound) || errors.Is(err, api.ErrInput) {
			continue // gone meanwhile; a directory
		}
		if ctx.Err() != nil {
			return answer{err: ctx.Err()}
		}
		var pod v1.Pod
		p := Pod{State: path}
		if err == nil && yaml.Unmarshal(file.Data, &pod) == nil && pod.Name != "" {
			p.UID, p.Namespace = string(pod.UID), cmp.Or(pod.Namespace, "default")
			p.Name = strings.ToLower(pod.Name + "-" + l.host.NodeName)
		}
		a.pods = append(a.pods, p)
	}
	return a
}
