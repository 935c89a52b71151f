package chores

import (
	"testing"

	"github.com/headgate/headgate/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }
