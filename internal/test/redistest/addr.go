package redistest

import (
	"net"
	"strconv"
	"testing"

	"github.com/headgate/headgate/internal/redisproc"
)

// FreeAddr returns an address for a program that the test starts. No other test gets it, also while nobody listens
// there: before the program starts, and while it is restarted.
func FreeAddr(t testing.TB) string {
	t.Helper()
	port, err := redisproc.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
