package plugins

import (
	"fmt"
	"reflect"
)

// notSupported names the plugin and the rung of the ladder that it has not.
func notSupported[T VolumePlugin](p VolumePlugin) error {
	return fmt.Errorf("plugin %s is not a %s", p.GetPluginName(), reflect.TypeFor[T]().Name())
}
