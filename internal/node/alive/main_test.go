package alive

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/testutil"
)

// envStay makes this program a process that stays, in place of running the tests.
const envStay = "KVOL_TEST_STAY"

func TestMain(m *testing.M) {
	if os.Getenv(envStay) != "" {
		fmt.Println("ready")
		time.Sleep(time.Hour) // it is killed before
		return
	}
	testutil.Main(m, host.Main)
}
