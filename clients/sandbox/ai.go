package sandbox

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// AIConfig configures an [AI]. The zero AIConfig accepts all calls.
type AIConfig struct {
	Config // Limit and Account are in requests; Answer is not used

	Tokens        Limit // of each tenant without [AI.SetTokenLimit]; zero: none
	AccountTokens Limit // of all tenants together; zero: none

	// APIKey is the required key of calls. "" means any key or none.
	APIKey string

	// Completion is the number of tokens of an answer, up to the max of the call. 0 means 20.
	Completion int
}

// AI is a provider of completions with the paths, headers, answers and refusals of OpenAI or
// Anthropic. The tenant is the header Headgate-Tenant or, without it, the API key.
//
// It limits requests and tokens, of tenants and of the account. A call is charged to all limits
// or to none. On arrival, a call is charged its prompt and the max of its answer; what the answer
// did not use is returned afterwards. A refusal names the account ("organization"), or the user
// if the tenant's own limit has less room.
type AI struct {
	*HTTP
	config  AIConfig
	dialect dialect

	// Guarded by the Provider's lock.
	tokens  map[string]*meter
	account meter // in tokens
	stats   map[string]*AIStats
	fault   Fault // of the next calls that fail on demand
	faults  int
	served  int
}

// AIStats counts the calls of a tenant. A refusal counts for every limit that was exceeded.
type AIStats struct {
	Requests, Tokens               int // refused by the tenant's own limits: violations
	AccountRequests, AccountTokens int // refused by the account's limits: violations

	Prompt, Completion int64 // tokens of the answers
}

// Fault is a refusal on demand, see [AI.FailAs].
type Fault int

// The faults. Each has the status and the text of its provider.
const (
	InsufficientQuota Fault = iota + 1 // no credit left
	SpendLimit                         // the monthly limit is used up
	Overloaded                         // the provider is overloaded
	ContextLength                      // the prompt is too long
	ContentPolicy                      // the prompt is refused for its content
	TooLarge                           // the call alone exceeds a limit
)

// dialect is the format of one provider.
type dialect interface {
	// path reports whether it is a path for calls.
	path(path string) bool
	key(r *http.Request) string
	// wrong returns why the provider refuses a call with 400, or "".
	wrong(r *http.Request, c chat) string
	completion(id string, c chat, tokens int) any
	// refusal returns the body for a status, in the provider's format.
	refusal(status int, kind, code, words, id string) any
	limited(s state) (kind, code, words string)
	headers(h http.Header, s state)
	fault(f Fault, c chat) (status int, kind, code, words string)
	status(status int) (kind, code, words string)
}

// chat is the body of a call.
type chat struct {
	Model               string            `json:"model"`
	Messages            []json.RawMessage `json:"messages"`
	System              json.RawMessage   `json:"system"`
	Tools               json.RawMessage   `json:"tools"`
	MaxTokens           int               `json:"max_tokens"`
	MaxCompletionTokens int               `json:"max_completion_tokens"`
	N                   int               `json:"n"`
	Stream              bool              `json:"stream"`

	prompt int // tokens
}

func (c chat) bound() int   { return max(c.MaxTokens, c.MaxCompletionTokens, 0) }
func (c chat) choices() int { return min(max(c.N, 1), 128) }

// state is the state of the meters for headers and refusals.
type state struct {
	at        time.Time
	model     string
	tenant    string // "": the account's limits have less room
	requests  reading
	tokens    reading
	inTokens  bool          // refused for its tokens, otherwise for its request
	requested int           // tokens
	wait      time.Duration // refused: until there is room
}

// reading is the state of one meter.
type reading struct {
	limited     bool
	limit, left int           // limit is per minute
	reset       time.Duration // until it is full
}

// NewOpenAI starts a provider with the API of OpenAI; the base URL of calls is its URL with /v1.
// It also accepts calls in Azure's format. It returns errors of the network. Close stops it.
func NewOpenAI(config AIConfig) (*AI, error) { return newAI(config, openAI{}) }

// NewAnthropic starts a provider with the API of Anthropic. It returns errors of the network.
// Close stops it.
func NewAnthropic(config AIConfig) (*AI, error) { return newAI(config, anthropic{}) }

func newAI(config AIConfig, d dialect) (*AI, error) {
	h, err := listen(config.Config)
	if err != nil {
		return nil, err
	}
	config.Tokens, config.AccountTokens = config.Tokens.normal(), config.AccountTokens.normal()
	config.Completion = cmp.Or(max(config.Completion, 0), 20)
	a := &AI{
		HTTP: h, config: config, dialect: d,
		tokens: map[string]*meter{}, account: meter{limit: config.AccountTokens}, stats: map[string]*AIStats{},
	}
	h.serve(a)
	return a, nil
}

// SetTokenLimit sets the token limit of a tenant; zero: none. Tokens that are used stay used.
func (a *AI) SetTokenLimit(tenant string, limit Limit) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tokensOf(tenant).change(limit, a.clock(time.Now()))
}

// AIStats returns the counts of each tenant since the start.
func (a *AI) AIStats() map[string]AIStats {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := make(map[string]AIStats, len(a.stats))
	for tenant, stats := range a.stats {
		all[tenant] = *stats
	}
	return all
}

// Fail is [Provider.Fail] with this provider's format.
func (a *AI) Fail(n, status int) {
	a.mu.Lock()
	a.faults = 0
	a.mu.Unlock()
	a.Provider.Fail(n, status)
}

// FailAs makes the next n calls within their limits fail with a fault. n ≤ 0 ends it.
func (a *AI) FailAs(n int, fault Fault) {
	status, _, _, _ := a.dialect.fault(fault, chat{})
	a.mu.Lock()
	a.fault, a.faults = fault, max(n, 0)
	a.mu.Unlock()
	a.Provider.Fail(n, status)
}

// ServeHTTP handles one call.
func (a *AI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := time.Now()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		status := http.StatusBadRequest
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			status = http.StatusRequestEntityTooLarge
		}
		a.refuse(w, status, "")
		return
	}
	// Requests that are not calls are not charged.
	key := a.dialect.key(r)
	switch {
	case !a.dialect.path(r.URL.Path):
		a.refuse(w, http.StatusNotFound, fmt.Sprintf("Invalid URL (%s %s)", r.Method, r.URL.Path))
		return
	case r.Method != http.MethodPost:
		a.refuse(w, http.StatusMethodNotAllowed, "Not allowed to "+r.Method+" on "+r.URL.Path)
		return
	case a.config.APIKey != "" && key != a.config.APIKey:
		a.refuse(w, http.StatusUnauthorized, "")
		return
	}
	var c chat
	wrong := ""
	if err := json.Unmarshal(body, &c); err != nil {
		wrong = "We could not parse the JSON body of your request."
	} else if c.prompt = promptTokens(c); c.Stream {
		wrong = "stream: this sandbox does not stream"
	} else {
		wrong = a.dialect.wrong(r, c)
	}
	asked := callOf(r.Header.Get)
	asked.Tenant = cmp.Or(asked.Tenant, clip(key))
	taken := 0
	if wrong == "" {
		taken = c.prompt + cmp.Or(c.bound(), a.config.Completion)*c.choices()
	}
	v, s, fault, id := a.arrives(at, asked, c.Model, taken)
	if !a.linger(r.Context(), v) {
		panic(http.ErrAbortHandler)
	}
	a.dialect.headers(w.Header(), s)
	switch {
	case v.rejected:
		a.limit(w, s, asked.Tenant, taken, id)
	case v.struck && v.status == NoAnswer:
		panic(http.ErrAbortHandler)
	case v.struck && fault != 0:
		a.settle(asked.Tenant, taken, 0, 0)
		status, kind, code, words := a.dialect.fault(fault, c)
		writeJSON(w, status, a.dialect.refusal(status, kind, code, words, id))
	case v.struck:
		a.settle(asked.Tenant, taken, 0, 0)
		a.refuse(w, v.status, "")
	case wrong != "":
		a.refuse(w, http.StatusBadRequest, wrong)
	default:
		tokens := a.config.Completion
		if c.bound() > 0 {
			tokens = min(tokens, c.bound())
		}
		a.settle(asked.Tenant, taken, c.prompt, tokens*c.choices())
		writeJSON(w, http.StatusOK, a.dialect.completion(id, c, tokens))
	}
}

// arrives charges a call to all meters or to none, and reads them.
func (a *AI) arrives(at time.Time, asked Call, model string, tokens int) (v visit, s state, fault Fault, id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at = a.clock(at)
	own, n := a.tokensOf(asked.Tenant), float64(tokens)
	v = a.decide(at, asked, protocol{ok: http.StatusOK, throttled: http.StatusTooManyRequests}, charge{own, n}, charge{&a.account, n})
	a.served++
	id = strconv.Itoa(a.served)
	requests, account := &a.Provider.tenant(asked.Tenant).meter, &a.Provider.account
	s = state{at: at, model: model, requested: tokens, wait: v.wait}
	byTenant := !requests.limit.unlimited() || !own.limit.unlimited()
	byAccount := !account.limit.unlimited() || !a.account.limit.unlimited()
	if v.rejected {
		// Nothing was charged, so the meters are unchanged.
		over := func(m *meter, n float64, count *int) time.Duration {
			ok, wait := m.spares(at, a.tolerance, n)
			if !ok {
				*count++
			}
			return wait
		}
		stats := a.statsOf(asked.Tenant)
		r, t := over(requests, 1, &stats.Requests), over(own, n, &stats.Tokens)
		ar, at := over(account, 1, &stats.AccountRequests), over(&a.account, n, &stats.AccountTokens)
		byTenant = max(r, t) >= max(ar, at)
		s.inTokens = max(t, at) > max(r, ar)
	} else if byTenant && byAccount {
		byTenant = requests.left(at) < account.left(at) || own.left(at) < a.account.left(at)
	}
	if byTenant {
		s.tenant, s.requests, s.tokens = asked.Tenant, read(requests, at), read(own, at)
	} else {
		s.requests, s.tokens = read(account, at), read(&a.account, at)
	}
	if v.struck && a.faults > 0 {
		a.faults--
		fault = a.fault
	}
	return v, s, fault, id
}

func read(m *meter, t time.Time) reading {
	if m.limit.unlimited() {
		return reading{}
	}
	minute := cmp.Or(m.limit.Rate*60, float64(m.limit.Burst))
	r := reading{limited: true, limit: int(minute), left: int(m.left(t)), reset: maxWait}
	if m.limit.Rate > 0 {
		r.reset = time.Duration(min(m.drained(t)/m.limit.Rate*1e9, float64(maxWait)))
	}
	return r
}

// settle returns the tokens that an answer did not use, and counts those that it did.
func (a *AI) settle(tenant string, taken, prompt, completion int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, back := a.clock(time.Now()), float64(prompt+completion-taken)
	a.tokensOf(tenant).use(now, back)
	a.account.use(now, back)
	stats := a.statsOf(tenant)
	stats.Prompt += int64(prompt)
	stats.Completion += int64(completion)
}

func (a *AI) tokensOf(tenant string) *meter {
	m := a.tokens[tenant]
	if m == nil {
		m = &meter{limit: a.config.Tokens}
		a.tokens[tenant] = m
	}
	return m
}

func (a *AI) statsOf(tenant string) *AIStats {
	s := a.stats[tenant]
	if s == nil {
		s = &AIStats{}
		a.stats[tenant] = s
	}
	return s
}

// limit answers a call that exceeds a limit.
func (a *AI) limit(w http.ResponseWriter, s state, tenant string, taken int, id string) {
	const status = http.StatusTooManyRequests
	if a.neverFits(tenant, taken) {
		_, kind, code, words := a.dialect.fault(TooLarge, chat{Model: s.model, prompt: taken})
		writeJSON(w, status, a.dialect.refusal(status, kind, code, words, id))
		return
	}
	// Rounded up, so that a caller that waits for this time is not too early.
	w.Header().Set("Retry-After", strconv.Itoa(max(int(math.Ceil(s.wait.Seconds())), 1)))
	kind, code, words := a.dialect.limited(s)
	writeJSON(w, status, a.dialect.refusal(status, kind, code, words, id))
}

// neverFits reports whether a call is larger than a full meter.
func (a *AI) neverFits(tenant string, taken int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range [...]*meter{a.tokensOf(tenant), &a.account} {
		if !m.limit.unlimited() && taken > m.limit.Burst {
			return true
		}
	}
	return false
}

func (a *AI) refuse(w http.ResponseWriter, status int, words string) {
	if status < 200 || status > 599 {
		status = http.StatusInternalServerError
	}
	kind, code, usual := a.dialect.status(status)
	writeJSON(w, status, a.dialect.refusal(status, kind, code, cmp.Or(words, usual), "0"))
}

// object is a JSON object.
type object map[string]any

// answerText returns a text with the number of tokens that promptTokens would count.
func answerText(tokens int) string { return strings.TrimSpace(strings.Repeat("ok ", tokens)) }

// promptTokens counts roughly like a tokenizer: one token for four letters of a word, for three
// digits, for every sign and every character beyond ASCII, and some for each message. It is
// independent of the estimates of clients.
func promptTokens(c chat) int {
	tokens := 3
	for _, message := range c.Messages {
		tokens += 3 + jsonTokens(message)
	}
	return tokens + jsonTokens(c.System) + jsonTokens(c.Tools)
}

func jsonTokens(raw json.RawMessage) int {
	var value any
	if raw == nil || json.Unmarshal(raw, &value) != nil {
		return 0
	}
	return valueTokens(value)
}

func valueTokens(value any) int {
	tokens := 0
	switch v := value.(type) {
	case string:
		return textTokens(v)
	case []any:
		for _, element := range v {
			tokens += valueTokens(element)
		}
	case map[string]any:
		switch v["type"] {
		case "image_url", "image", "file", "document", "input_audio":
			return 765 // an image of 1024 x 1024 according to OpenAI's guide
		}
		for _, element := range v {
			tokens += valueTokens(element)
		}
	}
	return tokens
}

func textTokens(text string) (tokens int) {
	letters, digits := 0, 0
	flush := func() {
		tokens += (letters+3)/4 + (digits+2)/3
		letters, digits = 0, 0
	}
	for _, r := range text {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z':
			letters++
		case '0' <= r && r <= '9':
			digits++
		case r == ' ':
			flush()
		default:
			flush()
			tokens++
		}
	}
	flush()
	return tokens
}
