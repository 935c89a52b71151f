package e2e

import (
	"testing"

	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/internal/test/redistest"
)

func TestMain(m *testing.M) {
	pacer.Main()
	redistest.Main(m)
}
