package alive

import (
	"testing"

	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, host.Main) }
