package fixture

import (
	"encoding/binary"
	"encoding/json" // refused
)

func f() {
	json.Marshal("x")
	binary.Write(nil, nil, nil)
}
