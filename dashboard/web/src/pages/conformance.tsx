import { clock, num, plural, span, time } from '../format';
import { useResource } from '../hooks';
import { tick } from '../live';
import { route, setQuery } from '../router';
import type { Conformance, ConformanceBucket, ConformanceHour, ViolationCause } from '../types';
import { Card } from '../ui/card';
import { Badge } from '../ui/icon';
import { Name, TenantLink } from '../ui/name';
import { EmptyState, Loaded } from '../ui/states';
import { Table } from '../ui/table';

const hour = 3_600_000;
const spans: Record<string, string> = { 24: '24 hours', 168: '7 days', 720: '30 days' };

/** Whether the calls of a queue kept to its limits, hour by hour. */
export function ConformancePage({ queue }: { queue: string }) {
	const { query } = route.value, hours = spans[query.get('hours') ?? ''] ? query.get('hours')! : '24', tenant = query.get('tenant') ?? '';
	const conformance = useResource<Conformance>(['queues', queue, 'conformance'], { hours, tenant }, 30);
	return (
		<div class="stack">
			<form class="card filters" onSubmit={(e) => e.preventDefault()}>
				<label class="switch">Time
					<select value={hours} onChange={(e) => setQuery({ hours: e.currentTarget.value })}>{Object.entries(spans).map(([n, text]) => <option key={n} value={n}>{text}</option>)}</select>
				</label>
				<label class="search"><span class="vh">Filter by tenant</span>
					<input type="search" placeholder="Tenant (full name)" value={tenant} maxLength={128} autocomplete="off" spellcheck={false} onChange={(e) => setQuery({ tenant: e.currentTarget.value })} />
				</label>
			</form>
			<Loaded of={conformance}>{(c) => <Kept queue={queue} c={c} />}</Loaded>
		</div>
	);
}

function Kept({ queue, c }: { queue: string; c: Conformance }) {
	if (c.buckets.length === 0) {
		return c.counts ? <EmptyState title="No calls in this time" icon="idle">Calls are counted about 3 s after they have ended.</EmptyState>
			: <EmptyState title="Calls are not counted" icon="idle">Say <code>conformance: true</code> for queue <bdi>{queue}</bdi> in the limits file.</EmptyState>;
	}
	const exceeded = c.buckets.flatMap((b) => b.hours.filter((h) => h.over).map((h) => ({ b, h })));
	return (
		<>
			{!c.counts && <p class="notice warn" role="status">The calls of this queue are not counted any more.</p>}
			{c.missed.length > 0 && <p class="notice warn" role="status">Some calls were not counted in {plural(c.missed.length, 'hour')}, the latest {clock(time(c.missed.at(-1)), tick.value)}.</p>}
			<Card title="Most in any window of a limit" end={<button type="button" class="end" onClick={() => save(`${queue}-conformance.csv`, csv(c))}>Save as CSV</button>}>
				<Table<ConformanceBucket> caption="Limits, with the hours in which they were used" rows={c.buckets} id={nameOf} columns={[
					{ label: 'Limit', cell: (b) => <><b><Name>{b.limit}</Name></b>{b.window_seconds !== undefined && <small class="why">in {span(b.window_seconds * 1000)}</small>}</> },
					{ label: 'Of', cell: (b) => <Of queue={queue} b={b} /> },
					{ label: 'Hours', cell: (b) => <Strip b={b} from={time(c.from)} to={time(c.to)} /> },
					{ label: 'Most', figure: true, cell: (b) => { const w = worst(b); return <>{num(took(w))} <small>of {num(allowed(w))}</small></>; } },
					{ label: 'Kept', cell: (b) => (b.hours.some((h) => h.over) ? <Badge tone="bad">Exceeded</Badge> : <Badge tone="good">Kept</Badge>) },
				]} />
				{c.total > c.buckets.length && <p class="hint">{plural(c.total - c.buckets.length, 'more')} kept further below their limits.</p>}
			</Card>
			{exceeded.length > 0 && (
				<Card title="Exceeded">
					<Table caption="Windows in which a limit was exceeded" rows={exceeded} id={({ b, h }) => nameOf(b) + h.at} columns={[
						{ label: 'When', cell: ({ h }) => clock(time(h.over!.at), tick.value) },
						{ label: 'Limit', cell: ({ b }) => <Name>{b.limit}</Name> },
						{ label: 'Of', cell: ({ b }) => <Of queue={queue} b={b} /> },
						{ label: 'Took', figure: true, cell: ({ h }) => <>{num(h.over!.took)} <small>of {num(h.over!.allowed)}</small></> },
						{ label: 'Why', cell: ({ h }) => (h.over!.causes.length === 0 ? 'No change explains it.' : h.over!.causes.map((cause) => <Why key={cause.at + cause.what} cause={cause} />)) },
					]} />
				</Card>
			)}
		</>
	);
}

function Why({ cause: c }: { cause: ViolationCause }) {
	const reason = c.reason ? <small class="why"><bdi>{c.reason}</bdi></small> : null, at = clock(time(c.at), tick.value);
	switch (c.what) {
		case 'run': return <p><bdi>{c.actor}</bdi> ran jobs at once at {at}.{reason}</p>;
		case 'changed': return <p><bdi>{c.actor}</bdi> changed it at {at}: <s>{c.before ?? 'none'}</s> {c.after ?? 'none'}.{reason}</p>;
		case 'ended': return <p>The override of <bdi>{c.actor}</bdi> ended at {at}.{reason}</p>;
		case 'unknown': return <p>Not known: the audit has all changes only since {at}.</p>;
		default: return <p>What was used of it was lost from Redis at {at}.</p>;
	}
}

/** Whose calls share a limit. */
function Of({ queue, b }: { queue: string; b: ConformanceBucket }) {
	const { tenant, '': formerly, ...others } = b.values;
	if (formerly !== undefined) return <bdi>{formerly}</bdi>; // of a limit that is gone
	const rest = Object.entries(others).map(([name, value]) => <span key={name}> {name} <bdi>{value}</bdi></span>);
	if (tenant === undefined && rest.length === 0) return <>all</>;
	return <>{tenant !== undefined && <TenantLink queue={queue} tenant={tenant} />}{rest}</>;
}

/** A strip with a cell for each hour: how full the fullest window of the hour was. */
function Strip({ b, from, to }: { b: ConformanceBucket; from: number; to: number }) {
	const n = Math.max(1, Math.floor((to - from) / hour) + 1), width = 240 / n, over = b.hours.filter((h) => h.over).length;
	const label = `${plural(b.hours.length, 'hour')} with calls, ${over === 0 ? 'none above the limit' : `${num(over)} above the limit`}`;
	return (
		<svg class="strip" viewBox="0 0 240 16" preserveAspectRatio="none" role="img" aria-label={label}>
			<title>{label}</title>
			{b.hours.map((h) => <rect key={h.at} class={h.over ? 'over' : 'kept'} x={Math.round((time(h.at) - from) / hour) * width} width={width} y={h.over ? 0 : 15 - 14 * part(h)} height={h.over ? 16 : 1 + 14 * part(h)} />)}
		</svg>
	);
}

const took = (h: ConformanceHour) => h.over?.took ?? h.most;
const allowed = (h: ConformanceHour) => h.over?.allowed ?? h.allowed;
const part = (h: ConformanceHour) => Math.min(1, h.most / Math.max(1, h.allowed));
const worst = (b: ConformanceBucket) => b.hours.reduce((a, h) => (took(h) / Math.max(1, allowed(h)) > took(a) / Math.max(1, allowed(a)) ? h : a));
const nameOf = (b: ConformanceBucket) => JSON.stringify([b.limit, b.values]);

/** The hours as a file. A text that a spreadsheet would take for a formula gets a quote in front. */
function csv(c: Conformance): string {
	const cell = (v: string | number | undefined) => `"${String(v ?? '').replace(/^[=+\-@\t\r]/, "'$&").replaceAll('"', '""')}"`;
	const lines = c.buckets.flatMap((b) => b.hours.map((h) => [b.limit, Object.values(b.values).join(' '), b.window_seconds, h.at, h.most, h.allowed, h.over?.at, h.over?.took, h.over?.allowed, h.over && (h.over.causes.map(causeText).join('; ') || 'no change explains it')]));
	return [['limit', 'of', 'window_seconds', 'hour', 'most', 'allowed', 'exceeded_at', 'exceeded_took', 'exceeded_allowed', 'causes'], ...lines].map((line) => line.map(cell).join(',')).join('\r\n');
}

function causeText(c: ViolationCause): string {
	const because = c.reason ? ` (${c.reason})` : '';
	switch (c.what) {
		case 'run': return `${c.actor} ran jobs at once at ${c.at}${because}`;
		case 'changed': return `${c.actor} changed it at ${c.at} from ${c.before ?? 'none'} to ${c.after ?? 'none'}${because}`;
		case 'ended': return `the override of ${c.actor} ended at ${c.at}${because}`;
		case 'unknown': return `not known, because the audit has all changes only since ${c.at}`;
		default: return `what was used of it was lost from Redis at ${c.at}`;
	}
}

/** Saves a text as a file. */
function save(name: string, text: string): void {
	const link = document.createElement('a');
	link.href = URL.createObjectURL(new Blob([text], { type: 'text/csv' }));
	link.download = name;
	link.click();
	URL.revokeObjectURL(link.href);
}
