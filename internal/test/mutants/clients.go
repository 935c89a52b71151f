package main

// clientMutants break how answers of providers are classified, and how calls are kept from being
// made twice.
var clientMutants = []mutant{
	// Webhooks.
	{
		"cmd/worker/handlers.go", `_ = queue.SetQuota(ctx, queue.Quota{Unit: q.Unit(), Limit: q.Limit, Window: q.Window, Remaining: q.Remaining, Of: of})`, `_ = ctx`,
		"missing write", "adaptive limits follow a provider's answers", "cmd/worker TestQuotasAreFollowed",
	},
	{
		"cmd/worker/webhooks.go", `Quota:         func(ctx context.Context, quota clients.Quota) { passOn(ctx, quota, queue.QuotaOfEndpoint) },`, `Quota: func(ctx context.Context, quota clients.Quota) { passOn(ctx, quota, queue.QuotaOfTenant) },`,
		"wrong key", "limits per endpoint follow what its receiver says", "cmd/worker TestQuotasAreFollowed",
	},
	{
		"clients/webhook/ratelimit.go", `if n > 0 && window > 0 && (q.Window == 0 || window < q.Window) {`, `if n > 0 && window > 0 && (q.Window == 0 || window > q.Window) {`,
		"swapped", "of a receiver's limits the one with the shortest window says the rate", "clients/webhook TestQuotaOf",
	},
	{
		"clients/webhook/ratelimit.go", `other[fmt.Sprint(policy.Value)] = true`, ``,
		"missing write", "a receiver's limit on bytes does not hold calls back", "clients/webhook TestQuotaOf",
	},
	{
		"clients/ai/meters.go", `if found > window*4/5 && found < window*5/4 {`, `if found > window*4/5 {`,
		"missing condition", "a limit of an unknown window says nothing", "clients/ai TestWindow",
	},
	{
		"internal/strictjson/strictjson.go", `if _, duplicate := members[name]; duplicate {`, `if _, duplicate := members[name]; duplicate && known == nil {`,
		"missing branch", "the second of two amounts is not the one that is paid", "clients/payment TestPayload",
	},
	{
		"clients/webhook/outcome.go", `after := min(clients.ParseRetryAfter(response.Header.Get("Retry-After"), shared.Clock(response.Header.Get("Date"))), s.config.MaxRetryAfter)`, `after := clients.ParseRetryAfter(response.Header.Get("Retry-After"), shared.Clock(response.Header.Get("Date")))`,
		"no bound", "a stranger's Retry-After is bounded", "clients/webhook TestAnswers",
	},
	{
		"clients/webhook/outcome.go", `after := min(clients.ParseRetryAfter(response.Header.Get("Retry-After"), shared.Clock(response.Header.Get("Date"))), s.config.MaxRetryAfter)`, `after := min(clients.ParseRetryAfter(response.Header.Get("Retry-After"), shared.Clock("")), s.config.MaxRetryAfter)`,
		"clock", "a receiver's date is held against its own clock", "clients/webhook TestAnswers",
	},
	{
		"clients/webhook/outcome.go", `if response.Header.Get("Retry-After") == "" {`, `if response.Header.Get("Retry-After") != "" {`,
		"swapped", "503 without a time is a fault, and with one a pause", "clients/webhook TestAnswers|TestAtFault",
	},
	{
		"clients/webhook/outcome.go", `case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly:`, `case http.StatusRequestTimeout, http.StatusTooEarly:`,
		"missing branch", "409 is an attempt under way, and tried again", "clients/webhook TestAnswers",
	},
	{
		"clients/webhook/outcome.go", `if errors.Is(err, ssrf.ErrProhibitedIP) || errors.Is(err, ssrf.ErrProhibitedNetwork) {`, `if errors.Is(err, ssrf.ErrProhibitedNetwork) {`,
		"missing branch", "a private address is not called", "clients/webhook TestPrivateAddresses|TestForbiddenAddresses|TestRebinding",
	},
	{
		"clients/internal/transport/transport.go", `case sent:`, `case sent && ctx.Err() == nil:`,
		"missing condition", "a call that was sent and cut off has no known end", "clients/webhook TestWorkerEnds|TestTimeoutAfterItWasSent|TestLostAfterItWasSent",
	},
	{
		"clients/webhook/sender.go", `if !config.AllowPrivate {`, `if config.AllowPrivate {`,
		"swapped", "no call reaches a private address", "clients/webhook TestPrivateAddresses|TestForbiddenAddresses",
	},
	{
		"clients/webhook/notfound.go", `pause := min(max(lasted, firstNotFoundPause), maxNotFoundPause, left)`, `pause := min(max(lasted, firstNotFoundPause), left)`,
		"no bound", "404 is tried again every five minutes", "clients/webhook TestNotFound",
	},
	{
		"clients/webhook/notfound.go", `if left <= 0 {`, `if left < -time.Hour {`,
		"off by one", "404 ends with its hour", "clients/webhook TestNotFound",
	},
	{
		"clients/webhook/sign.go", `return strings.ReplaceAll(clients.EscapeHeader(id), ".", "%2E")`, `return clients.EscapeHeader(id)`,
		"no escape", "no part of an id passes for a timestamp", "clients/webhook TestMessageID",
	},

	// Payments.
	{
		"clients/payment/outcome.go", `case status == http.StatusConflict, answer.Code == stripe.ErrorCodeIdempotencyKeyInUse:`, `case answer.Code == stripe.ErrorCodeIdempotencyKeyInUse:`,
		"missing branch", "a payment that is under way is not archived", "clients/payment TestOutcome",
	},
	{
		"clients/payment/outcome.go", `if again == "false" || again != "true" && seen.Header("Idempotent-Replayed") == "true" {`, `if again == "false" {`,
		"missing condition", "a 500 that is a replay is not requested again", "clients/payment TestOutcome",
	},
	{
		"clients/payment/outcome.go", `return clients.Unknown(reason)`, `return clients.Retryable(reason)`,
		"swapped", "a 5xx may have moved money", "clients/payment TestOutcome",
	},
	{
		"clients/payment/outcome.go", `if answer.Code == stripe.ErrorCodeLockTimeout || limit == "resource-specific" {`, `if answer.Code == stripe.ErrorCodeLockTimeout {`,
		"missing condition", "a lock of one object says nothing about the account", "clients/payment TestOutcome",
	},
	{
		"clients/payment/outcome.go", `case stripe.PaymentIntentStatusSucceeded, stripe.PaymentIntentStatusProcessing, stripe.PaymentIntentStatusRequiresCapture:`, `case stripe.PaymentIntentStatusSucceeded, stripe.PaymentIntentStatusProcessing, stripe.PaymentIntentStatusRequiresCapture, stripe.PaymentIntentStatusRequiresAction:`,
		"swapped", "a payment that waits for its customer is not a success", "clients/payment Test",
	},
	{
		"clients/payment/outcome.go", `return clients.KeyRefused(after, reason.says("the account key was refused; its jobs wait for a valid one"))`, `return clients.Permanent(reason.says("the account key was refused; its jobs wait for a valid one"))`,
		"swapped", "no payment is archived for a wrong key", "clients/payment TestOutcome|TestWrongKey",
	},

	// AI.
	{
		"clients/ai/outcome.go", `case wait == 0 && daily.MatchString(a.message):`, `case daily.MatchString(a.message):`,
		"missing condition", "a time that the provider names replaces a guess", "clients/ai TestAnswers",
	},
	{
		"clients/ai/outcome.go", `case wait > maxPause:`, `case wait > 100*maxPause:`,
		"no bound", "a wait of more than an hour holds the one job", "clients/ai TestAnswers",
	},
	{
		"clients/ai/outcome.go", `case a.status == http.StatusForbidden && !content.MatchString(a.String()):`, `case a.status == http.StatusForbidden:`,
		"missing condition", "a prompt that is refused for its content is not sent again", "clients/ai TestAnswers",
	},
	{
		"clients/ai/outcome.go", `case a.status == http.StatusTooManyRequests && tooLarge.MatchString(a.message):`, `case a.status == http.StatusTooManyRequests && tooLarge.MatchString(a.code):`,
		"wrong key", "a request that alone exceeds the limit is not sent again", "clients/ai TestAnswers",
	},
	{
		"clients/ai/outcome.go", `return time.Date(year, month, day+1, 0, 0, 0, 0, time.UTC)`, `return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)`,
		"off by one", "a quota of a day comes back on the next one", "clients/ai TestAnswers",
	},
	{
		"clients/ai/outcome.go", `sent, result := x.status != 0 || x.progress.Sent(), free()`, `sent, result := x.status != 0, free()`,
		"missing condition", "a completion without an answer has no known end", "clients/ai TestLost",
	},

	// E-mail: SMTP, SES, Resend.
	{
		"clients/email/outcome.go", `case at == stepAnswer:`, `case at == stepConnect:`,
		"swapped", "a message that may have been taken has no known end", "clients/email TestLost|TestReplies|TestTimeout",
	},
	{
		"clients/email/outcome.go", `all := at == stepConnect || r.code == 454`, `all := at == stepConnect`,
		"missing condition", "454 is of the whole account", "clients/email TestAnswers|TestThrottledAtTheGreeting",
	},
	{
		"clients/email/outcome.go", `return r.enhanced == "5.4.5" || sendingLimit.MatchString(r.text) && !notOfRate.MatchString(r.text)`, `return sendingLimit.MatchString(r.text) && !notOfRate.MatchString(r.text)`,
		"missing condition", "5.4.5 is a sending limit, and archives no message", "clients/email TestReplies",
	},
	{
		"clients/email/outcome.go", `return r.class("4.7.") && !notOfRate.MatchString(r.text)`, `return r.class("4.7.")`,
		"missing condition", "greylisting is about one message", "clients/email TestReplies",
	},
	{
		"clients/email/outcome.go", `if r.code != 421 && (r.class("4.2.") || r.class("5.2.")) {`, `if r.code != 421 && r.class("5.2.") {`,
		"missing condition", "a full mailbox slows no other message down", "clients/email TestReplies",
	},
	{
		"clients/email/ses_outcome.go", `case a.status == http.StatusInternalServerError, a.status == http.StatusServiceUnavailable:`, `case a.status/100 == 5:`,
		"swapped", "after a 502 it is unknown whether SES accepted the message", "clients/email TestAnswers|TestSES",
	},
	{
		"clients/email/ses_outcome.go", `case "AccessDenied", "NotAuthorized":`, `case "NotAuthorized":`,
		"missing branch", "a permission that is missing holds the one job", "clients/email TestAnswers|TestSES",
	},
	{
		"clients/email/ses_outcome.go", `case code == "AccountSuspended":`, `case code == "AccountSuspension":`,
		"missing branch", "a suspension does not archive the backlog", "clients/email TestAnswers|TestSES",
	},
	{
		"clients/email/resend_outcome.go", `case "daily_quota_exceeded", "monthly_quota_exceeded":`, `case "monthly_quota_exceeded":`,
		"missing branch", "a quota of a day holds the account", "clients/email TestAnswers|TestResend",
	},
	{
		"clients/email/resend_outcome.go", `now = date // dates are relative to Resend's clock`, `_ = date`,
		"clock", "Resend's dates are held against its own clock", "clients/email TestAnswers|TestResend",
	},

	// Shared by all clients.
	{
		"internal/httpcall/feedback.go", `return believable(time.Duration(math.Ceil(min(n, MaxPause.Seconds()) * float64(time.Second)))) // rounded up: never too early`, `return believable(time.Duration(math.Floor(min(n, MaxPause.Seconds()) * float64(time.Second)))) // rounded up: never too early`,
		"rounding", "no call comes before its Retry-After", "clients TestParseRetryAfter",
	},
	{
		"internal/httpcall/feedback.go", `func believable(d time.Duration) time.Duration { return min(max(d, 0), MaxPause) }`, `func believable(d time.Duration) time.Duration { return max(d, 0) }`,
		"no bound", "no Retry-After is longer than a day", "clients TestParseRetryAfter",
	},
	{
		"clients/keylife.go", `case age > KeyLife:`, `case age > KeyLife+2*time.Hour:`,
		"clock", "no call is made with a key that the provider may have forgotten", "clients/payment TestKeyLife",
	},
	{
		"clients/keylife.go", `case age < -ClocksApart:`, `case age < -1000*ClocksApart:`,
		"clock", "no age of a key is trusted if clocks are far apart", "clients/payment TestKeyLife",
	},
	{
		"clients/keylife.go", `if c.Attempt <= 1 {`, `if c.Attempt <= 2 {`,
		"off by one", "a repeat is not made if the time of the first attempt is unknown", "clients/payment TestKeyLife",
	},
	{
		"clients/progress.go", `return p.hidden || p.conn != nil && p.conn.written.Load() > p.before`, `return p.hidden || p.conn != nil && p.conn.written.Load() > 0`,
		"wrong number", "bytes of earlier calls on a reused connection do not count", "clients TestProgress",
	},
	{
		"clients/progress.go", `r.Header[strings.ToLower(name)] = key`, `r.Header[HeaderIdempotencyKey] = key`,
		"no fence", "net/http sends no call again by itself", "clients TestNeverRepeat",
	},
	{
		"clients/call.go", `func unfit(r rune) bool { return r <= ' ' || r > '~' }`, `func unfit(r rune) bool { return r < ' ' || r > '~' }`,
		"no escape", "any tenant's name is a valid header value", "clients TestCallHeaders",
	},
	{
		"clients/breaker/breaker.go", `if n++; n < b.config.Failures && !probe {`, `if n++; n <= b.config.Failures && !probe {`,
		"off by one", "a provider is down after five failures in a row", "clients/breaker Test",
	},
}
