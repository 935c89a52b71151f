import { measured, num, plural, rate, relative, sentenceCase, span, time } from '../format';
import { useResource } from '../hooks';
import { queues, serverNow } from '../live';
import { href } from '../router';
import { recent, useSeries } from '../series';
import type { Answer, Overview, Pause, Provider, Quota, QuotaLimit } from '../types';
import { Chart, nothingYet } from '../ui/chart';
import { Badge } from '../ui/icon';
import { Meter } from '../ui/meter';
import { pausedBy, pausedWhat } from '../ui/sentence';
import { EmptyState, Loaded, Skeleton } from '../ui/states';
import { Stat, Stats } from '../ui/table';

/** The answers of providers, and their breakers and quotas. */
export function ProvidersPage() {
	const providers = useResource<{ providers: Provider[] }>(['providers'], undefined, 5);
	const all = queues.value;
	return (
		<div class="stack">
			{all === null ? <div class="card"><Skeleton lines={6} /></div> : <div class="cards">{all.filter((q) => q.active !== undefined).map((q) => <Answers key={q.queue} q={q} />)}</div>}
			<Loaded of={providers}>{({ providers: list }) => list.length === 0
				? <div class="card"><EmptyState title="No providers yet" icon="idle">Workers report circuit breakers and quotas with their heartbeats.</EmptyState></div>
				: <div class="grid">{list.map((p) => <Card key={p.kind} of={p} />)}</div>}
			</Loaded>
		</div>
	);
}

const shown: { answers: Answer[]; label: string; colour: string; dashed?: boolean }[] = [
	{ answers: ['ok'], label: 'Accepted', colour: '--accent' },
	{ answers: ['throttled', 'postponed'], label: 'Rate-limited (429)', colour: '--warn', dashed: true },
	{ answers: ['permanent', 'retryable', 'unknown'], label: 'Failed', colour: '--bad' },
];

/** Each answer after its number of calls. */
const words: Record<Answer, string> = { ok: 'accepted', throttled: 'rate-limited (429)', postponed: 'postponed', retryable: 'failed temporarily', permanent: 'failed permanently', unknown: 'with unknown outcome' };

function Answers({ q }: { q: Overview }) {
	const s = useSeries(q.queue), id = `p-${q.queue}`;
	const series = shown.map(({ answers, ...rest }) => {
		const values = s.answers.map((a) => answers.reduce((sum, name) => sum + (a[name] ?? 0), 0));
		return { ...rest, values, recent: recent(values) };
	});
	const pauses = (q.pauses ?? []).filter((p) => p.by === 'provider');
	return (
		<section class="card" aria-labelledby={id}>
			<header>
				<h2 id={id}><a href={href('queues', q.queue)}><bdi class="name">{q.queue}</bdi></a></h2>
				{pauses.length > 0 && <Badge tone="warn" icon="pause">{plural(pauses.length, 'pause')}</Badge>}
			</header>
			{!q.calls ? <EmptyState title="No calls yet" icon="idle" /> : (
				<>
					<Stats>{series.map((one) => <Stat key={one.label} label={one.label} note="in the last minute" tone={one.colour === '--bad' && one.recent ? 'bad' : undefined}>{one.recent === 0 ? 'none' : measured(one.recent, 2)}</Stat>)}</Stats>
					{/* Two charts, because a few refusals would not be visible beside many accepted calls. */}
					{[series.slice(0, 1), series.slice(1)].map((part, i) => (
						<Chart key={i} x={s.x} series={part} height={96} summary={s.x.length === 0 ? nothingYet : `Answers of the provider in the last ten minutes, now ${part.map((one) => `${one.label} ${measured(one.recent, 2)}`).join(', ')}.`} />
					))}
					<p class="also">Calls so far: {Object.entries(q.answers ?? {}).filter(([, n]) => n > 0).map(([name, n]) => `${num(n)} ${words[name as Answer]}`).join(', ')}.</p>
				</>
			)}
			{pauses.map((p, i) => <ProviderPause key={i} of={p} now={q.now} queue={q.queue} />)}
		</section>
	);
}

function ProviderPause({ of: p, now, queue }: { of: Pause; now: string; queue: string }) {
	return (
		<p class="notice">
			<Badge tone="warn" icon="pause">{p.tried ? 'Held' : 'Asked to wait'}</Badge> {pausedWhat(p, queue)},{' '}
			{pausedBy(p, now)}
		</p>
	);
}

/** What remains of a quota; providers may report only that or only the limit. */
function Remaining({ of: { account, name, limit, remaining } }: { of: Quota }) {
	if (limit === undefined) return <span class="figure">{remaining === undefined ? 'not reported' : `${num(remaining)} remaining`}</span>;
	if (remaining === undefined) return <span class="figure">limit {num(limit)}</span>;
	return <Meter level={remaining} full={limit} label={`Remaining ${name}, ${account}`} />;
}

const periods: Record<number, string> = { 1: 's', 60: 'min', 3600: 'h', 86400: 'day' };

/** What the provider said of a quota, beside what the limits assume that count the same. */
function Beside({ of: q, now }: { of: Quota; now: number }) {
	const said: string[] = [];
	if (q.limit !== undefined && q.window_seconds) said.push(periods[q.window_seconds] ? `${num(q.limit)}/${periods[q.window_seconds]}` : `${num(q.limit)} in ${span(q.window_seconds * 1000)}`);
	if (time(q.resets_at) > now) said.push(`full again in ${span(time(q.resets_at) - now)}`); // a reset in the past is not shown
	if (q.said_at) said.push(`said ${relative(Math.min(time(q.said_at), now), now)}`);
	return (
		<div class="quota">
			<h4><bdi>{sentenceCase(q.name)}</bdi>{q.account && <small>account of <bdi>{q.account}</bdi></small>}</h4>
			<dl>
				<div><dt>The provider said</dt><dd><Remaining of={q} />{said.length > 0 && <small>{said.join(', ')}</small>}</dd></div>
				<div>
					<dt>Headgate assumes</dt>
					{!q.limits ? <dd>The limits could not be read.</dd> : q.limits.length === 0 ? <dd>No limit counts this.</dd> : q.limits.map((l) => <Assumed key={`${l.queue} ${l.name}`} of={l} now={now} />)}
				</div>
			</dl>
		</div>
	);
}

function Assumed({ of: l, now }: { of: QuotaLimit; now: number }) {
	const rateNow = rate(l.rate_per_second, l.rule);
	return (
		<dd>
			{l.level === undefined || l.full === undefined ? <span class="figure">{rateNow}</span> : <Meter level={l.level} full={l.full} label={`Permits of limit ${l.name}, ${l.queue}`} />}
			<small>
				{rateNow}, <a href={href('queues', l.queue, 'limits')}><bdi>{l.name}</bdi></a>{l.adapted < 1 && `, lowered from ${l.rule}`}{time(l.next) - now >= 1000 && `, next in ${span(time(l.next) - now)}`}
				{!l.follows && ', does not follow the provider: not adaptive'}
			</small>
		</dd>
	);
}

function Card({ of: p }: { of: Provider }) {
	const b = p.breaker, quotas = p.quotas ?? [], now = serverNow();
	return (
		<section class="card provider" aria-label={`Provider of ${p.kind}`}>
			<header><h2>{sentenceCase(p.kind)}</h2><small>{plural(p.workers, 'worker')}</small></header>
			<h3>Circuit breaker</h3>
			<p>{!b ? 'No circuit breaker' : b.opened > 0 ? `Opened ${plural(b.opened, 'time')} after failed calls` : 'Never opened'}</p>
			<h3>Quotas</h3>
			{quotas.length === 0 ? <p>None reported.</p> : quotas.map((quota) => <Beside key={quota.account + '\n' + quota.name} of={quota} now={now} />)}
		</section>
	);
}
