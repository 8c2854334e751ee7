package fixture

import (
	"os"
	. "os" // refused
)

func f() {
	os.Create("x") // refused

	os.CreateTemp("", "x")
	Getpid()
}
