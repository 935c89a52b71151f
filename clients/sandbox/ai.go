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

// AIConfig says how a provider of completions behaves. The zero AIConfig accepts
// everything.
type AIConfig struct {
	Config // Limit and Account are in requests; Answer is not asked

	Tokens        Limit // of each tenant that [AI.SetTokenLimit] did not name; zero: none
	AccountTokens Limit // of all tenants together; zero: none

	// APIKey is what calls have to bring. "" means any or none.
	APIKey string

	// Completion is how many tokens an answer has, up to what the call allows. 0
	// means 20.
	Completion int
}

// AI is a provider of completions with the paths, headers, answers and refusals
// of OpenAI or of Anthropic. The tenant is in the header Headgate-Tenant, or else
// it is the API key.
//
// It meters requests and tokens, of tenants and of the account, all together or
// not at all. A call takes its prompt and all that its answer may have when it
// arrives, and when it was answered gets back what the answer had not. A refusal
// names the account ("organization"), or the user when the tenant's own limit is
// the nearer one.
type AI struct {
	*HTTP
	config  AIConfig
	dialect dialect

	// Under the Provider's lock.
	tokens  map[string]*meter
	account meter // in tokens
	stats   map[string]*AIStats
	fault   Fault // of the next faults calls that are struck
	faults  int
	served  int
}

// AIStats counts the calls of a tenant. A refusal counts for every meter that was
// over.
type AIStats struct {
	Requests, Tokens               int // refused by the tenant's own limits: violations
	AccountRequests, AccountTokens int // refused by the account's: violations

	Prompt, Completion int64 // tokens of the answers
}

// Fault is a refusal that calls get on demand, see [AI.FailAs].
type Fault int

// Faults. Each has the status and the words of its provider.
const (
	InsufficientQuota Fault = iota + 1 // no credit left
	SpendLimit                         // the month's limit is used up
	Overloaded                         // too many calls of everybody
	ContextLength                      // the prompt is too long
	ContentPolicy                      // the prompt is refused for what it says
	TooLarge                           // the call alone is over a limit
)

// dialect is one provider's way of saying things.
type dialect interface {
	// path tells whether calls are taken there.
	path(path string) bool
	key(r *http.Request) string
	// wrong is what the provider would not take of a call, as 400; "" is nothing.
	wrong(r *http.Request, c chat) string
	completion(id string, c chat, tokens int) any
	// refusal is the body of a status; words are in the provider's own.
	refusal(status int, kind, code, words, id string) any
	limited(s state) (kind, code, words string)
	headers(h http.Header, s state)
	fault(f Fault, c chat) (status int, kind, code, words string)
	status(status int) (kind, code, words string)
}

// chat is what a call asks for.
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

// state is what headers and refusals tell of the meters.
type state struct {
	at        time.Time
	model     string
	tenant    string // "": the account's limits are the nearer ones
	requests  reading
	tokens    reading
	inTokens  bool          // refused for its tokens, else for being one more request
	requested int           // tokens
	wait      time.Duration // refused: until there is room
}

// reading is one meter's.
type reading struct {
	limited     bool
	limit, left int           // limit is a minute's
	reset       time.Duration // until it is full
}

// NewOpenAI starts a provider that speaks as OpenAI does: its URL with /v1 is the
// base of calls. It takes those of Azure, too. The error is the network's. Close
// ends it.
func NewOpenAI(config AIConfig) (*AI, error) { return newAI(config, openAI{}) }

// NewAnthropic starts a provider that speaks as Anthropic does. The error is the
// network's. Close ends it.
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

// SetTokenLimit gives a tenant a limit of tokens of its own from now on; zero:
// none. What the tenant has used of the old one stays used.
func (a *AI) SetTokenLimit(tenant string, limit Limit) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tokensOf(tenant).change(limit, a.clock(time.Now()))
}

// AIStats are the counts of each tenant that called, since the start.
func (a *AI) AIStats() map[string]AIStats {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := make(map[string]AIStats, len(a.stats))
	for tenant, stats := range a.stats {
		all[tenant] = *stats
	}
	return all
}

// Fail is [Provider.Fail] with the words of this provider.
func (a *AI) Fail(n, status int) {
	a.mu.Lock()
	a.faults = 0
	a.mu.Unlock()
	a.Provider.Fail(n, status)
}

// FailAs makes the next n calls that are within their limits fail in a way that
// the provider knows. n ≤ 0 ends it.
func (a *AI) FailAs(n int, fault Fault) {
	status, _, _, _ := a.dialect.fault(fault, chat{})
	a.mu.Lock()
	a.fault, a.faults = fault, max(n, 0)
	a.mu.Unlock()
	a.Provider.Fail(n, status)
}

// ServeHTTP takes one call.
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
	// What is no call at all is not metered.
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
	if asked.Tenant == "" {
		asked.Tenant = clip(key)
	}
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
		a.write(w, status, a.dialect.refusal(status, kind, code, words, id))
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
		a.write(w, http.StatusOK, a.dialect.completion(id, c, tokens))
	}
}

// arrives asks all meters for a call, and reads them.
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
		// Nothing was used, so the meters say the same as before.
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
	minute := m.limit.Rate * 60
	if minute == 0 {
		minute = float64(m.limit.Burst)
	}
	r := reading{limited: true, limit: int(minute), left: int(m.left(t)), reset: maxWait}
	if m.limit.Rate > 0 {
		r.reset = time.Duration(min(m.drained(t)/m.limit.Rate*1e9, float64(maxWait)))
	}
	return r
}

// settle gives back what an answer did not need, and counts what it did.
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

// limit answers a call that is over a limit.
func (a *AI) limit(w http.ResponseWriter, s state, tenant string, taken int, id string) {
	const status = http.StatusTooManyRequests
	if a.neverFits(tenant, taken) {
		_, kind, code, words := a.dialect.fault(TooLarge, chat{Model: s.model, prompt: taken})
		a.write(w, status, a.dialect.refusal(status, kind, code, words, id))
		return
	}
	// Rounded up: whoever waits for so long is not too early.
	w.Header().Set("Retry-After", strconv.Itoa(max(int(math.Ceil(s.wait.Seconds())), 1)))
	kind, code, words := a.dialect.limited(s)
	a.write(w, status, a.dialect.refusal(status, kind, code, words, id))
}

// neverFits tells whether a call is larger than a full meter.
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
	a.write(w, status, a.dialect.refusal(status, kind, code, cmp.Or(words, usual), "0"))
}

func (a *AI) write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if status != http.StatusNoContent && status != http.StatusNotModified {
		json.NewEncoder(w).Encode(body)
	}
}

// object is JSON as the providers write it.
type object map[string]any

// answerText has as many tokens as promptTokens would count.
func answerText(tokens int) string { return strings.TrimSpace(strings.Repeat("ok ", tokens)) }

// promptTokens counts as a tokenizer would, roughly: a token for four letters of
// a word, for three digits, for every sign and every character beyond ASCII, and
// some for each message. It shares nothing with what clients guess.
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
			return 765 // a picture of 1024 x 1024, as OpenAI's guide counts it
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
