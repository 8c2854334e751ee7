package fixture

import (
	"flag" // refused

	"github.com/spf13/pflag"
	"github.com/spf13/viper" // refused
)

func f() {
	viper.New()
	flag.Parse()
	pflag.Parse()
}
