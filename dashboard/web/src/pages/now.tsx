import { bytes, clock, measured, num, plural, rate, time } from '../format';
import { useResource } from '../hooks';
import { incoming, queues } from '../live';
import { href } from '../router';
import { growth, recent, shareOf, useSeries } from '../series';
import { mayChangeAll } from '../session';
import type { AuditAction, AuditEntry, Fault, Overview } from '../types';
import { askPause, askResume } from '../actions';
import { Chart, nothingYet } from '../ui/chart';
import { Badge, Icon } from '../ui/icon';
import { Name, shortened } from '../ui/name';
import { Sentence, ofAll, pausedBy, pausedWhat } from '../ui/sentence';
import { EmptyState, ErrorState, Skeleton } from '../ui/states';
import { Stat, Stats } from '../ui/table';
import { ApiError } from '../api';

/** The current state of every queue, or of one. */
export function NowPage({ queue }: { queue?: string }) {
	const all = queues.value;
	if (all === null) return <div class="cards"><div class="card"><Skeleton lines={6} /></div></div>;
	const shown = queue === undefined ? all : all.filter((q) => q.queue === queue);
	if (queue !== undefined && shown.length === 0) return <ErrorState error={new ApiError(404, '', `There is no queue “${queue}”.`)} />;
	if (shown.length === 0) {
		return (
			<EmptyState title="No queue yet" icon="idle">
				A queue appears once its limits are published or a job is enqueued: <code>enqueue send --kind email --tenant acme …</code>
			</EmptyState>
		);
	}
	return <div class="cards">{shown.map((q) => <QueueCard key={q.queue} q={q} />)}</div>;
}

function state(q: Overview) {
	if (q.pauses?.some(ofAll)) return <Badge tone="warn" icon="pause">Paused</Badge>;
	if (q.waiting > 0 && q.unserved) return <Badge tone="bad">Not served</Badge>;
	if (q.waiting > 0) return <Badge tone="busy">Shaping</Badge>;
	if (q.active) return <Badge tone="good">Sending</Badge>;
	return <Badge tone="quiet">Idle</Badge>;
}

/** Whether the slowest tenant is paused while the most of the jobs wait for other reasons. */
const pausedAside = (q: Overview): boolean => q.top?.pause !== undefined && !q.pauses?.some(ofAll) && q.top.waiting * 2 < q.waiting;

/** What holds the queue, if anything. */
function Hero({ q }: { q: Overview }) {
	const whole = q.pauses?.find(ofAll);
	if (pausedAside(q)) return <p class="sentence"><b>{plural(q.waiting, 'job')}</b> waiting in {q.queue}; their limits let <b class="nowrap">{rate(q.allowed_per_second)}</b> go</p>;
	if (q.top && q.waiting > 0) return <Sentence of={q.top} link />;
	if (whole) return <p class="sentence"><b>{q.queue}</b> is paused {pausedBy(whole, q.now)}</p>;
	if (q.waiting > 0) return <p class="sentence"><b>{plural(q.waiting, 'job')}</b> waiting in {q.queue}; what holds them is not known yet</p>;
	return <p class="sentence calm">No jobs are waiting in <b>{q.queue}</b>.{!q.unserved && ' New jobs go at once, as fast as their limits allow.'}</p>;
}

/** Records in Redis that scripts cannot read: how many, and the latest. */
function Faults({ of }: { of: Fault[] }) {
	const last = of.at(-1);
	if (!last) return null;
	return (
		<p class="notice bad">
			<Icon name="warn" /><b>{plural(of.length, 'fault')}</b>: scripts cannot read <Name>{last.what}</Name> (<bdi>{last.reason}</bdi>).
			{' '}Its jobs wait until it is repaired or deleted. <code>enqueue status</code> lists all faults.
		</p>
	);
}

/** Whether the backlog grows, in words. */
function trendOf(q: Overview, growth: number | null): string | false {
	if (q.waiting === 0 || growth === null) return false;
	const perSecond = Math.round(growth * 10) / 10;
	return perSecond === 0 ? 'steady' : `${perSecond > 0 ? 'grows' : 'shrinks'} by ${rate(Math.abs(perSecond))}`;
}

/** What operators and publishers changed in the last ten minutes, for the chart. */
function useMarks(queue: string, now: string) {
	const { data } = useResource<{ entries: AuditEntry[] | null }>(['audit'], { queue, limit: 20 });
	return (data?.entries ?? []).filter((e) => e.action !== 'refused').map((e) => ({ at: time(e.at) / 1000, text: `${marked[e.action as keyof typeof marked] ?? e.action} by ${shortened(e.actor)}` }))
		.filter((m) => m.at > time(now) / 1000 - 600).slice(0, 5);
}
const marked: Record<Exclude<AuditAction, 'refused' | 'keys' | 'unregister'>, string> = {
	pause: 'paused', resume: 'resumed', override: 'limit changed', clear: 'override cleared', publish: 'limits published', cancel: 'jobs cancelled', retry: 'jobs retried', run: 'jobs run', delete: 'jobs deleted',
	wake: 'jobs tried again', enable: 'endpoint enabled',
	'periodic add': 'periodic job set', 'periodic remove': 'periodic job removed', 'periodic pause': 'periodic job paused', 'periodic resume': 'periodic job resumed',
};

function QueueCard({ q }: { q: Overview }) {
	const s = useSeries(q.queue), marks = useMarks(q.queue, q.now);
	const sent = recent(s.sent), rejected = recent(s.answers.map((a) => a.throttled ?? 0)), share = shareOf(s);
	const part = share ? `${num(Math.round(share.part * 100))}\u00a0% of the ${rate(Math.round(share.allowed * 10) / 10)} allowed${share.always ? '' : ' while jobs waited'}` : q.waiting > 0 ? 'allowed rate unknown' : 'no jobs waiting';
	const pauses = q.pauses ?? [], others = q.tenants - 1;
	const arriving = incoming(q.queue);
	const told = pausedAside(q) ? undefined : q.top?.pause; // by the sentence
	const whole = q.active !== undefined, later = (q.scheduled ?? 0) + (q.retry ?? 0), id = `q-${q.queue}`;
	return (
		<section class="card queue" aria-labelledby={id}>
			<header>
				<h2 id={id}><a href={href('queues', q.queue)}><bdi class="name">{q.queue}</bdi></a></h2>
				{state(q)}
				{mayChangeAll.value && (pauses.some(ofAll)
					? <button type="button" onClick={() => askResume(q.queue, {})}>Resume…</button>
					: <button type="button" onClick={() => askPause(q.queue, {}, q.waiting)}>Pause…</button>)}
			</header>
			<Faults of={q.faults ?? []} />
			{q.unserved?.map((why) => <p key={why} class="notice bad"><Icon name="warn" />Jobs cannot go: {why}</p>)}
			{q.moving && <p class="notice"><Icon name="wait" />The {q.moving}.</p>}
			<Hero q={q} />
			{others > 0 && q.waiting > 0 && !pausedAside(q) && (
				<p class="also">Slowest of <a href={href('queues', q.queue, 'tenants')}>{num(q.tenants)} waiting tenants</a>.</p>
			)}
			{pauses.filter((p) => !ofAll(p) && !(told && p.tenant === told.tenant && p.kind === told.kind && p.endpoint === told.endpoint)).slice(0, 3).map((p, i) => (
				<p key={i} class="notice"><Badge tone="warn" icon="pause">{p.tried ? 'Held' : 'Paused'}</Badge> {pausedWhat(p, q.queue)}, {pausedBy(p, q.now)}</p>
			))}
			<Stats>
				{whole && <Stat label="In" note="accepted in the last minute">{measured(arriving, 1)}</Stat>}
				{whole && <Stat label="Out" note={`sent in the last minute, ${part}`}>{measured(sent, 1)}</Stat>}
				<Stat label="Waiting" note={[trendOf(q, growth(s)), later > 0 && `and ${num(later)} for later`].filter(Boolean).join(', ') || null}>{num(q.waiting)}</Stat>
				{!whole && <Stat label="Allowed">{q.waiting ? rate(q.allowed_per_second) : '–'}</Stat>}
				{whole && <Stat label="In flight" note={q.pending ? `and ${num(q.pending)} released` : null}>{num(q.active!)}</Stat>}
				<Stat label="Clears at" note={q.waiting > 0 && q.drains_at ? `${q.confidence === 'rough' ? 'roughly, ' : ''}if nothing new arrives` : null}>
					{q.waiting === 0 ? 'empty' : q.drains_at ? clock(time(q.drains_at), time(q.now)) : q.unserved ? 'no worker' : 'unknown'}
				</Stat>
				{whole && <Stat label="Rate-limited (429)" tone={rejected ? 'bad' : undefined} note="in the last minute">{measured(rejected, 2)}</Stat>}
				{whole && <Stat label="Archived">{q.archived ? <a href={href('queues', q.queue, 'failures')}>{num(q.archived)}</a> : '0'}</Stat>}
				{whole && <Stat label="Kept in Redis" note={q.stored ? `${plural(q.stored, 'job')}, in all states` : null}>{bytes(q.stored_bytes ?? 0)}</Stat>}
			</Stats>
			{whole && <Chart x={s.x} height={128} marks={marks} summary={sent === null ? nothingYet : `Calls sent to the provider in the last ten minutes: ${rate(sent)} in the last minute, ${part}.`}
				series={[
					{ label: 'Allowed', colour: '--line-strong', values: s.allowed.map((a, i) => a && Math.max(a, s.sent[i]!)), broad: true },
					{ label: 'Sent', colour: '--accent', values: s.sent, filled: true },
				]} />}
		</section>
	);
}
