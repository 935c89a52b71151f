package settings

import (
	"errors"
	"fmt"
	"os"

	"github.com/headgate/headgate/queue/encryption"
)

// Enqueue is what the programs that enqueue jobs have in common.
type Enqueue struct {
	RedisFullAt     int    `env:"REDIS_FULL_AT" envDefault:"75" flag:"redis-full-at" help:"percent of Redis's maxmemory from which new jobs are refused"`
	PayloadKeys     string `env:"PAYLOAD_KEYS" secret:"true" help:"keys that encrypt payloads and results in Redis, ID:KEY,ID:KEY; the first one encrypts. Empty: nothing is encrypted"`
	PayloadKeysFile string `env:"PAYLOAD_KEYS_FILE" flag:"payload-keys" help:"file of these keys, one a line"`
}

// FullAt is the part of Redis's maxmemory from which new jobs are refused.
func (e Enqueue) FullAt() float64 { return float64(e.RedisFullAt) / 100 }

// Check reports invalid settings.
func (e Enqueue) Check(wrong func(name, format string, args ...any)) {
	if e.RedisFullAt < 1 || e.RedisFullAt > 100 {
		wrong("REDIS_FULL_AT", "%d must be 1 to 100, in percent of maxmemory", e.RedisFullAt)
	}
}

// EncryptionKeys reads the payload keys; nil: there are none. The error names the setting.
func (e Enqueue) EncryptionKeys() (*encryption.Keys, error) {
	text, name := e.PayloadKeys, Prefix+"PAYLOAD_KEYS"
	if e.PayloadKeysFile != "" {
		if text != "" {
			return nil, fmt.Errorf("%s: set it or %s_FILE, not both", name, name)
		}
		name += "_FILE"
		data, err := os.ReadFile(e.PayloadKeysFile)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		text = string(data)
	} else if text == "" {
		return nil, nil
	}
	keys, err := encryption.Parse(text)
	if err == nil && keys == nil {
		err = errors.New("there is no key in it")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return keys, nil
}
