package conformance

import (
	"testing"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/testlong"
)

func TestMain(m *testing.M) {
	testlong.SameCases()
	redistest.Main(m)
}
