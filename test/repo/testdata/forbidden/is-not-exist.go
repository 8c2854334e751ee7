package fixture

import "os"

func f(err error) {
	os.IsNotExist(err)   // refused
	os.IsExist(err)      // refused
	os.IsPermission(err) // refused
	os.IsTimeout(err)    // refused

	_ = err == os.ErrNotExist
}
