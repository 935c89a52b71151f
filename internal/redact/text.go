package redact

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Text hides the secrets of a text, such as the answer of a provider, by the fields that always
// are secret.
func Text(text string) string { return new(Fields).Text(text) }

var (
	// token is a secret by its form: a JSON web token, or a key of a provider or of Headgate.
	token = regexp.MustCompile(`^(?:eyJ[\w-]+\.[\w-]+(?:\.[\w-]*)?` +
		`|[sr]k_(?:live|test)_\w+|whsec_[\w+/=-]+|hg_[\w-]{20,}|sk-[\w-]{16,}|re_\w{16,}|gh[pousr]_\w{16,}|xox[a-z]-[\w-]+|SG\.[\w.-]{16,})`)

	// prefix is how a token begins.
	prefix = regexp.MustCompile(`\b(?:eyJ|[sr]k_(?:live|test)_|whsec_|hg_|sk-|re_|gh[pousr]_|xox[a-z]-|SG\.)`)

	// word is the first part of a JSON web token.
	word = regexp.MustCompile(`^[\w-]*`)

	schemes = regexp.MustCompile(`(?i)\b(bearer\s+)[\w.~+/=:-]{4,}`)

	links = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s"<>]+`)

	// assigned is a name with the mark before its value, as in forms, headers and parts of JSON.
	assigned = regexp.MustCompile(`([A-Za-z_][\w-]*)(\\*["']?\s*[:=]\s*)`)

	// assignment is the value. It is a pattern of its own because the value of a name that is not
	// secret is read again for names in it: read with each name, a=a=a=… takes time that grows with
	// the square of its length.
	assignment = regexp.MustCompile(`^(?:(?i:bearer|basic|digest|token|apikey)\s+)?(?:\\+"(?:[^"\\]|\\[^"\\])*|"(?:[^"\\]|\\.)*"?|'[^']*'?|[\[{][^\]}]*[\]}]?|[^\s&,;"'{}\[\]\\]+)`)

	// element is one of XML, with its text.
	element = regexp.MustCompile(`(<([A-Za-z_][\w.:-]*)(?:\s[^<>]*)?>)([^<]+)`)

	// digits are groups of digits, of which some may be the number of a card.
	digits = regexp.MustCompile(`\d(?:[ -]?\d){12,}`)
	groups = regexp.MustCompile(`\d+`)
)

// Text hides the secrets of a text.
func (f *Fields) Text(text string) string {
	if strings.Contains(text, "://") {
		text = links.ReplaceAllStringFunc(text, f.link)
	}
	text = tokens(text)
	text = schemes.ReplaceAllString(text, "${1}"+Hidden)
	if strings.ContainsAny(text, ":=") {
		text = f.assignments(text)
	}
	if strings.Contains(text, "<") {
		text = element.ReplaceAllStringFunc(text, func(whole string) string {
			if parts := element.FindStringSubmatch(whole); f.secret(parts[2]) {
				return parts[1] + Hidden
			}
			return whole
		})
	}
	return cards(text)
}

// tokens hides the secrets that have a form of their own.
func tokens(text string) string {
	var out strings.Builder
	done, from, wordEnd := 0, 0, 0
	for {
		at := prefix.FindStringIndex(text[from:])
		if at == nil {
			return out.String() + text[done:]
		}
		begin := from + at[0]
		from = begin + 1 // no token begins with the second letter of a prefix
		jwt := text[begin] == 'e'
		if jwt && begin < wordEnd {
			continue
		}
		if found := token.FindString(text[begin:]); found != "" {
			from = begin + len(found)
			out.WriteString(text[done:begin] + Hidden)
			done = from
		} else if jwt {
			// No second part follows this word, so no JSON web token begins in it. Looking again
			// at each eyJ in it takes time that grows with the square of its length.
			wordEnd = begin + len(word.FindString(text[begin:]))
		}
	}
}

// said are words that follow a name in a sentence about its value, as in "password: it is empty".
var said = []string{
	"a", "an", "are", "at", "cannot", "empty", "has", "invalid", "is", "it", "longer", "may", "missing", "must", "no", "not", "only", "required", "set", "the", "too",
	"unknown", "was",
}

func (f *Fields) assignments(text string) string {
	var out strings.Builder
	for {
		at := assigned.FindStringSubmatchIndex(text)
		if at == nil {
			return out.String() + text
		}
		name, mark := text[at[2]:at[3]], text[at[4]:at[5]]
		out.WriteString(text[:at[5]])
		text = text[at[5]:]
		if !f.secret(name) {
			continue // the value may be a name
		}
		value := assignment.FindString(text)
		if value == "" || value == Hidden || f.sentence(name, mark, value) {
			continue
		}
		out.WriteString(quoted(value))
		text = text[len(value):]
	}
}

// sentence reports whether a name and what follows it are words about a field.
func (f *Fields) sentence(name, mark, value string) bool {
	if strings.ContainsAny(mark, `="'`) || strings.ContainsAny(value[:1], `\"'[{`) {
		return false
	}
	return slices.Contains(said, value) || weak(name) && status.MatchString(value)
}

// status is what a server answers to a login, as in "auth: 535 refused".
var status = regexp.MustCompile(`^[a-z]+$|^[1-5]\d\d$`)

// quoted is Hidden in the quotes of a value.
func quoted(value string) string {
	for _, quote := range []string{`\"`, `"`, `'`} {
		if strings.HasPrefix(value, quote) {
			if strings.HasSuffix(value[len(quote):], quote) {
				return quote + Hidden + quote
			}
			return quote + Hidden
		}
	}
	return Hidden
}

// hooks are hosts whose paths are secrets: whoever knows one may post.
var hooks = []string{
	"hooks.slack.com", "discord.com", "discordapp.com", "webhook.office.com", "outlook.office.com", "hooks.zapier.com", "maker.ifttt.com", "api.telegram.org",
	"chat.googleapis.com", "events.pagerduty.com", "webhook.site", "hooks.airtable.com", "hook.make.com", "pipedream.net", "logic.azure.com", "open.feishu.cn",
	"oapi.dingtalk.com", "qyapi.weixin.qq.com", "hooks.mattermost.com", "integrations.sentry.io",
}

// link hides the user and the password of a URL, secret values of its query, and all of the path
// and the query for hosts whose URLs are secrets. The URL may be one that cannot be parsed.
func (f *Fields) link(text string) string {
	scheme, rest, _ := strings.Cut(text, "://")
	hostEnd := func(from int) int {
		if n := strings.IndexAny(rest[from:], `/?#\`); n >= 0 {
			return from + n
		}
		return len(rest)
	}
	end := hostEnd(0)
	at := strings.LastIndexByte(rest[:end], '@')
	if _, err := url.Parse(text); err != nil && at < 0 {
		if at = strings.LastIndexByte(rest, '@'); at >= 0 { // a password with a slash
			end = hostEnd(at)
		}
	}
	user, host := "", rest[at+1:end]
	if at >= 0 {
		user = Hidden + "@"
	}
	name, _, _ := strings.Cut(strings.ToLower(host), ":")
	if slices.ContainsFunc(hooks, func(hook string) bool { return name == hook || strings.HasSuffix(name, "."+hook) }) && len(rest)-end > len("/") {
		return scheme + "://" + user + host + "/" + Hidden
	}
	return scheme + "://" + user + host + f.query(rest[end:])
}

// query hides the secret values of the query and the fragment of a URL, and keeps all else as it is.
func (f *Fields) query(text string) string {
	var out strings.Builder
	for text != "" {
		next := strings.IndexAny(text[1:], "?&;#") + 1
		if next == 0 {
			next = len(text)
		}
		part := text[:next]
		text = text[next:]
		name, _, ok := strings.Cut(part[1:], "=")
		if decoded, err := url.QueryUnescape(name); err == nil {
			name = decoded
		}
		if ok && strings.ContainsRune("?&;#", rune(part[0])) && (f.secret(name) || slices.Contains([]string{"key", "sig", "code"}, plain(name))) {
			part = part[:strings.IndexByte(part, '=')+1] + Hidden
		}
		out.WriteString(part)
	}
	return out.String()
}

// cards hides the numbers of payment cards.
func cards(text string) string {
	return digits.ReplaceAllStringFunc(text, func(run string) string {
		var out strings.Builder
		at, done := groups.FindAllStringIndex(run, -1), 0
		for i := 0; i < len(at); i++ {
			for j := min(i+maxDigits, len(at)) - 1; j >= i; j-- { // the longest first
				if card(run[at[i][0]:at[j][1]]) {
					out.WriteString(run[done:at[i][0]] + Hidden)
					i, done = j, at[j][1]
					break
				}
			}
		}
		return out.String() + run[done:]
	})
}

// A card has so many digits.
const minDigits, maxDigits = 13, 19

// issued are the ranges of the first four digits of cards, and how many digits they have.
var issued = []struct{ from, to, least, most int }{
	{4000, 4999, 13, 19}, {5100, 5599, 16, 16}, {2221, 2720, 16, 16}, {3400, 3499, 15, 15}, {3700, 3799, 15, 15}, {3000, 3059, 14, 14},
	{3600, 3699, 14, 14}, {3800, 3999, 14, 14}, {3528, 3589, 16, 16}, {6011, 6011, 16, 19}, {6440, 6599, 16, 19}, {6200, 6299, 16, 19},
}

// between are the marks between the groups of a card's digits.
var between = strings.NewReplacer(" ", "", "-", "")

// card reports whether digits, with at most one mark between two of them, are the number of a card.
func card(text string) bool {
	if len(text) < minDigits || len(text) >= 2*maxDigits {
		return false
	}
	number := between.Replace(text)
	if len(number) < minDigits || len(number) > maxDigits {
		return false
	}
	head := int(number[0]-'0')*1000 + int(number[1]-'0')*100 + int(number[2]-'0')*10 + int(number[3]-'0')
	known := false
	for _, r := range issued {
		known = known || r.from <= head && head <= r.to && r.least <= len(number) && len(number) <= r.most
	}
	sum := 0
	for i := range len(number) { // the check digit of ISO/IEC 7812-1
		d := int(number[len(number)-1-i] - '0')
		if i%2 == 1 {
			d = d*2/10 + d*2%10
		}
		sum += d
	}
	return known && sum%10 == 0
}
