package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/svg"
	"github.com/headgate/headgate/throttle"
)

// How often a process asks for the one key of the plot, under a limit below that and one above.
const (
	hotEvery          = time.Millisecond
	hotRate, hotAbove = 100, 2000
	hotBlock          = 10
)

// countScripts is a hook that counts the scripts that a client sends.
type countScripts struct{ sent int }

func (*countScripts) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *countScripts) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.note(cmd)
		return next(ctx, cmd)
	}
}

func (c *countScripts) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			c.note(cmd)
		}
		return next(ctx, cmds)
	}
}

func (c *countScripts) note(cmd redis.Cmder) {
	if strings.HasPrefix(cmd.Name(), "eval") {
		c.sent++
	}
}

// hotKey is a line of the plot: how many scripts were sent by each of the questions.
type hotKey struct {
	name, class string
	sent        []int
	allowed     int
}

// playHotKey asks for one key, over and over: where most are refused, and where all are admitted.
func playHotKey(ctx context.Context, client *redis.Client) ([]byte, error) {
	options := *client.Options()
	own := redis.NewClient(&options)
	defer own.Close()
	var count countScripts
	own.AddHook(&count)
	now := time.Unix(1_800_000_000, 0)
	of := func(rate int64) (*throttle.Limiter, error) {
		l, err := throttle.New(own, fmt.Sprint("hot:", rate), throttle.Limit{Name: "hot", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(rate), Burst: 2 * hotBlock})
		if err != nil {
			return nil, err
		}
		return l.WithClock(func() time.Time { return now }), nil
	}
	below, err := of(hotRate)
	if err != nil {
		return nil, err
	}
	above, err := of(hotAbove)
	if err != nil {
		return nil, err
	}
	// The whole plot takes less time than a block is held.
	blocks, err := throttle.NewBlocks(above, hotBlock, time.Minute)
	if err != nil {
		return nil, err
	}
	each := &hotKey{name: "asking each time", class: "came"}
	lines := []*hotKey{{name: fmt.Sprintf("Take, %d/s", hotRate), class: "went"}, {name: fmt.Sprintf("Blocks, %d/s", hotAbove), class: "no"}}
	single := func(ctx context.Context, n int64, key string) (throttle.Decision, error) {
		return below.Take(ctx, n, key)
	}
	for i, ask := range []func(context.Context, int64, string) (throttle.Decision, error){single, blocks.Take} {
		begin := now
		count.sent = 0
		for ; now.Sub(begin) < longest; now = now.Add(hotEvery) {
			d, err := ask(ctx, 1, "k")
			if err != nil {
				return nil, err
			}
			if d.Allowed {
				lines[i].allowed++
			}
			lines[i].sent = append(lines[i].sent, count.sent)
		}
	}
	for i := range lines[0].sent {
		each.sent = append(each.sent, i+1)
	}
	return hotKeySVG(each, lines), nil
}

// hotKeySVG draws how many scripts were sent up to each moment.
func hotKeySVG(each *hotKey, lines []*hotKey) []byte {
	const base, most, tall = 268, 1000, 316
	y := func(n int) float64 { return base - 200*float64(n)/most }
	title := fmt.Sprintf("One key that is asked for %d times a second", time.Second/hotEvery)
	var says []string
	for _, l := range lines {
		says = append(says, fmt.Sprintf("%s: %d requests for %d calls that are admitted.", l.name, l.sent[len(l.sent)-1], l.allowed))
	}
	sheet := svg.New(width, tall, title, fmt.Sprintf(`Of %d questions. %s`, len(each.sent), strings.Join(says, " ")))
	line := sheet.Line
	line(`<text class="dim" x="12" y="46">requests to Redis since the first question</text>`)
	for n := 0; n <= most; n += 200 {
		line(`<path class="grid" d="M%d %sH%d"/><text class="dim end" x="%d" y="%d">%d</text>`, left, svg.Px(y(n)), right, left-8, int(y(n))+4, n)
	}
	for _, l := range append([]*hotKey{each}, lines...) {
		var path strings.Builder
		fmt.Fprintf(&path, "M%d %d", left, base)
		for i := 49; i < len(l.sent) && l.sent[i] <= most; i += 50 {
			fmt.Fprintf(&path, "L%s %s", svg.Px(x(time.Duration(i+1)*hotEvery)), svg.Px(y(l.sent[i])))
		}
		line(`<path class="%s" d="%s"/>`, l.class, path.String())
	}
	line(`<text class="dim" x="%s" y="84">%s</text>`, svg.Px(x(most*hotEvery)+6), each.name)
	for i, class := range []string{"tw", "tn"} {
		l := lines[i]
		at := y(l.sent[len(l.sent)-1])
		line(`<text class="%s" x="%d" y="%s">%s</text><text class="dim" x="%d" y="%s">%d requests</text>`,
			class, right+8, svg.Px(at-4), l.name, right+8, svg.Px(at+12), l.sent[len(l.sent)-1])
	}
	for s := range int(longest/time.Second) + 1 {
		line(`<text class="dim mid" x="%s" y="%d">%d s</text>`, svg.Px(x(time.Duration(s)*time.Second)), base+24, s)
	}
	return sheet.Bytes()
}
