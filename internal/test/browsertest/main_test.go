package browsertest

import (
	"flag"
	"testing"

	"github.com/headgate/headgate/internal/test/redistest"
)

func TestMain(m *testing.M) {
	// Tests wait for pages far more than they compute.
	_ = flag.Set("test.parallel", "3")
	redistest.Main(m)
}
