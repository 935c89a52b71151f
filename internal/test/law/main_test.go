package law_test

import (
	"testing"

	"github.com/headgate/headgate/internal/test/testlong"
)

func TestMain(m *testing.M) {
	testlong.SameCases()
	m.Run()
}
