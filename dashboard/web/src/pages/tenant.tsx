import { useState } from 'preact/hooks';
import { askAction, askPause, askResume } from '../actions';
import { askChange, askClear } from '../change';
import { bytes, algorithmName, clock, num, percent, plural, precise, relative, sentenceCase, side, span, time } from '../format';
import { useResource } from '../hooks';
import { serverNow } from '../live';
import { href } from '../router';
import { mayChange } from '../session';
import type { Event, JobPage, JobRow, LimitState, Tenant } from '../types';
import { Card } from '../ui/card';
import { Badge, Icon, type Tone } from '../ui/icon';
import { Meter } from '../ui/meter';
import { JobLink } from '../ui/name';
import { Sentence } from '../ui/sentence';
import { EmptyState, Loaded } from '../ui/states';
import { Stat, Stats, Table } from '../ui/table';
import { isPaused, Marks, rateOf } from './tenants';

/** One tenant in one queue: what holds it, its next slots and its recent outcomes. */
export function TenantPage({ queue, tenant }: { queue: string; tenant: string }) {
	const detail = useResource<Tenant>(['queues', queue, 'tenants', tenant], undefined, 1);
	return (
		<>
			<p class="crumb"><a href={href('queues', queue, 'tenants')}>Tenants of <bdi>{queue}</bdi></a></p>
			<Loaded of={detail} lines={10}>{(t) => (
				<div class="stack">
					{unknown(t) && <p class="notice warn"><Icon name="warn" />No job of <bdi>{tenant}</bdi> is known in {queue}. Check the name: what follows would apply to a new tenant.</p>}
					<Hero of={t} />
					<InSeries of={t} />
					<Slots of={t} />
					<div class="grid"><Recent of={t.recent ?? []} now={t.now} /><Jobs queue={queue} tenant={tenant} /></div>
				</div>
			)}</Loaded>
		</>
	);
}

const unknown = (t: Tenant): boolean => t.waiting === 0 && t.done === 0 && !t.recent?.length && !t.overridden && !isPaused(t);

function Hero({ of: t }: { of: Tenant }) {
	const { queue, tenant } = t;
	return (
		<section class="card" aria-label="Summary">
			<Sentence of={t} opens={t.window_opens} />
			<Stats>
				<Stat label="Waiting">{num(t.waiting)}</Stat>
				<Stat label="Rate">{rateOf(t)}</Stat>
				<Stat label="Clears at" note={t.waiting && t.confidence !== 'none' ? t.confidence : null}>{t.waiting === 0 ? 'empty' : t.drains_at ? clock(time(t.drains_at), time(t.now)) : 'unknown'}</Stat>
				<Stat label="Completed (total)">{num(t.done)}</Stat>
				<Stat label="Kept in Redis" note={t.stored ? `${plural(t.stored, 'job')}, in all states` : null}>{bytes(t.stored_bytes)}</Stat>
				<Stat label="Weight" note={t.own?.guarantee && `${t.own.guarantee} of what tenants share is guaranteed`}>{num(t.weight)}</Stat>
			</Stats>
			{mayChange.value && (
				<div class="actions">
					{isPaused(t)
						? <button type="button" onClick={() => askResume(queue, { tenant })}>Resume…</button>
						: <button type="button" onClick={() => askPause(queue, { tenant }, t.waiting)}>Pause…</button>}
					<button type="button" onClick={() => askChange(queue, tenant, t.limit)}>Change limit…</button>
					<button type="button" onClick={() => askAction(queue, 'cancel', { tenant }, `jobs of ${tenant}`)}>Cancel jobs…</button>
					<Marks of={t} />
				</div>
			)}
		</section>
	);
}

function InSeries({ of: t }: { of: Tenant }) {
	const limits = t.limits ?? [];
	return (
		<Card title={<>Limits that apply <small>A job goes when all of them admit it.</small></>}>
			{limits.length === 0 ? <p class="hint">No limits apply.</p> : <ol class="series">{limits.map((l) => <Limit key={l.name} of={l} t={t} />)}</ol>}
		</Card>
	);
}

function Limit({ of: l, t }: { of: LimitState; t: Tenant }) {
	const now = time(t.now), paused = time(l.paused_until) > now;
	return (
		<li class={l.binding ? 'binding' : ''}>
			<h3><bdi>{l.name}</bdi>{l.binding && <Badge tone="busy">Limiting now</Badge>}{paused && <Badge tone="warn" icon="pause">Paused</Badge>}</h3>
			<p class="rule">{l.rule}</p>
			<Meter level={l.level} full={l.full} label={`Permits of limit ${l.name}`} />
			<p><small>{sentenceCase(algorithmName(l.algorithm))}, <bdi>{l.scope}</bdi>{l.unit && <>, in <bdi>{l.unit}</bdi></>}{l.for && <>, {side(l)}</>}</small></p>
			{paused ? <p><small>until {clock(time(l.paused_until), now)}</small></p> : l.next && <p><small>admits the next {relative(time(l.next), now)}</small></p>}
			{l.adapted > 0 && l.adapted < 1 && <p><small>Lowered to {percent(l.adapted)} because the provider {l.lowered_by === 'quota' ? 'said that it admits less' : 'refused calls (429)'}</small></p>}
			{l.ramp && <p><small>{grown(l.ramp, now)}</small></p>}
			{(l.from === 'override' || l.not_in_force) && (
				<p><small>
					{l.not_in_force ? <bdi>{l.not_in_force}</bdi> : <>{l.file?.rule && <>instead of {l.file.rule}, </>}by <bdi>{l.actor}</bdi>, {l.until ? `until ${clock(time(l.until), now)}` : 'until cleared'}: <bdi>{l.reason}</bdi></>}{' '}
					{mayChange.value && <button type="button" class="link" onClick={() => askClear(t.queue, t.tenant, l)}>Clear…</button>}
				</small></p>
			)}
		</li>
	);
}

/** How far a limit with a ramp has grown. */
function grown(r: NonNullable<LimitState['ramp']>, now: number): string {
	if (!r.since) return `Grows from ${r.from} to ${r.to}, beginning with the first call`;
	if (time(r.until) <= now) return `Has grown from ${r.from}`;
	const state = `Now ${r.rate}, on its way from ${r.from} to ${r.to}`;
	return r.held ? `${state}: held back, ${num(Math.round(r.rejected * 100))} % of the latest calls were rejected` : `${state} ${relative(time(r.until), now)}`;
}

/** The next slots as marks on a time line. */
function Slots({ of: t }: { of: Tenant }) {
	const slots = (t.slots ?? []).map(time), now = time(t.now), last = slots.at(-1) ?? now, length = Math.max(last - now, 1);
	return (
		<Card title={<>Next slots {slots.length > 1 && <small>{last - now < 5 ? `${num(slots.length)} are due now` : `${num(slots.length)} within ${span(length)}`}</small>}</>}>
			{slots.length === 0 ? <p class="hint">{t.waiting === 0 ? 'No jobs are waiting. A new job gets a slot as soon as its limits admit it.' : 'Unknown, because the wait has no known end.'}</p> : (
				<>
					<ol class="slots">{slots.map((at, i) => (
						<li key={i} style={{ '--at': (at - now) / length }} title={precise(at)}><span class="vh">{precise(at)}</span></li>
					))}</ol>
					<p class="ends"><span>now</span><span>{precise((now + last) / 2)}</span><span>{precise(last)}</span></p>
				</>
			)}
		</Card>
	);
}

const tones: Record<string, Tone> = { done: 'good', completed: 'good', throttled: 'warn', retried: 'warn', postponed: 'warn', unknown: 'warn', archived: 'bad', expired: 'bad', crashed: 'bad' };

/** The outcome of a run. */
export function Outcome({ children }: { children: string }) {
	return <Badge tone={tones[children] ?? 'quiet'}>{children}</Badge>;
}

function Recent({ of, now }: { of: Event[]; now: string }) {
	return (
		<Card title="Recent outcomes">
			{of.length === 0 ? <EmptyState title="No calls yet" icon="idle" /> : (
				<Table caption="Recent outcomes" rows={of} id={(e) => e.event} columns={[
					{ label: 'Job', cell: (e) => <JobLink queue={e.queue} id={e.id} /> },
					{ label: 'When', cell: (e) => <span class="nowrap">{relative(time(e.at), time(now))}</span> },
					{ label: 'Outcome', cell: (e) => <><Outcome>{e.outcome}</Outcome>{e.error && <small class="because"><bdi>{e.error}</bdi></small>}</> },
					{ label: 'Took', figure: true, cell: (e) => span(e.took_seconds * 1000) },
				]} />
			)}
		</Card>
	);
}

const places = ['waiting', 'scheduled', 'retry', 'active', 'archived'];

function Jobs({ queue, tenant }: { queue: string; tenant: string }) {
	const [state, setState] = useState('waiting'), [cursors, setCursors] = useState<string[]>([]);
	const page = useResource<JobPage>(['queues', queue, 'jobs'], { tenant, state, cursor: cursors.at(-1), limit: 15 }, cursors.length ? 0 : 5);
	return (
		<Card title="Jobs" end={<select class="end" aria-label="State of the jobs" value={state} onChange={(e) => (setState(e.currentTarget.value), setCursors([]))}>{places.map((p) => <option key={p} value={p}>{p}</option>)}</select>}>
			<Loaded of={page}>{({ jobs, next }) => jobs.length === 0 ? <EmptyState title={`No jobs ${state === 'retry' ? 'waiting to retry' : state}`} icon="idle" /> : (
				<>
					<Table<JobRow> caption={`Jobs, ${state}`} rows={jobs} id={(j) => j.id} busy={page.loading} columns={[
						{ label: 'Job', cell: (j) => <JobLink queue={queue} id={j.id} /> },
						{ label: 'When', cell: (j) => <span class="nowrap">{j.at ? relative(time(j.at), serverNow()) : '–'}</span> },
						{ label: 'Priority', cell: (j) => j.priority },
						{ label: 'Attempt', figure: true, cell: (j) => num(j.attempt) },
					]} />
					{(next || cursors.length > 0) && (
						<nav class="paging" aria-label="Pages of jobs">
							<button type="button" aria-disabled={!cursors.length} onClick={() => setCursors(cursors.slice(0, -1))}>‹ Back</button>
							<button type="button" aria-disabled={!next} onClick={() => next && setCursors([...cursors, next])}>More ›</button>
						</nav>
					)}
				</>
			)}</Loaded>
		</Card>
	);
}
