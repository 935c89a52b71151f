package settings

import (
	"io"
	"log/slog"
)

// CheckLogFormat reports a format that [Logger] does not have.
func CheckLogFormat(format string, wrong func(name, format string, args ...any)) {
	if format != "text" && format != "json" {
		wrong("LOG_FORMAT", "%q is neither text nor json", format)
	}
}

// Logger returns a logger that writes text or json.
func Logger(w io.Writer, format string) *slog.Logger {
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, nil))
	}
	return slog.New(slog.NewTextHandler(w, nil))
}
