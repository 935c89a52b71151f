import type { ComponentChildren } from 'preact';
import { clock, num, span, time } from '../format';
import type { Hold, Outlook, Pause } from '../types';
import { tenantHref } from './name';

/** When jobs will be done: "done at 14:12". */
export function DoneAt({ at, now, confidence }: { at?: string | undefined; now: string; confidence: string }) {
	if (!at) return <>done at an unknown time</>;
	const t = time(at), n = time(now);
	if (t <= n + 1) return <>done now</>;
	return <>done at {confidence === 'rough' && 'about '}<time class="key" dateTime={at}>{clock(t, n)}</time></>;
}

/** Who paused something, until when, and why. The reason of an operator's pause begins with the name. */
export function pausedBy(p: Pause, now: string) {
	const until = p.probing ? 'while one job tries it' : p.tried && time(p.until) <= time(now) ? 'until the next job tries it' : `until ${p.until ? clock(time(p.until), time(now)) : 'resumed'}`;
	if (p.tried) return <>{until}: <bdi>{p.reason}</bdi></>;
	const [who, why] = p.by === 'operator' ? p.reason.split(/: (.*)/s) : ['the provider', p.reason];
	return <>by <bdi>{who}</bdi> {until}: <bdi>{why}</bdi></>;
}

/** Whether a pause applies to a whole queue. */
export const ofAll = (p: Pause): boolean => !p.tenant && !p.kind && !p.endpoint;

/** What a pause applies to, as the subject of a sentence. */
export const pausedWhat = (p: Pause, queue: string) =>
	p.endpoint ? <>endpoint <bdi>{p.endpoint}</bdi>{p.tenant && <> of <bdi>{p.tenant}</bdi></>}</>
	: p.tenant ? <><bdi>{p.tenant}</bdi>’s {p.kind ?? queue}</> : p.kind ? <>jobs of kind {p.kind} in {queue}</> : <>all of {queue}</>;

/**
 * The main sentence of this page: which limit holds the tenant, when its next slot is, how many
 * jobs wait and when they will be done.
 */
export function Sentence({ of, link, opens, full, rest }: {
	of: Omit<Outlook, 'text' | 'rate_per_second'>; link?: boolean; opens?: string | undefined;
	/** A concurrency limit without a free permit. */
	full?: Hold | undefined;
	/** Replaces how many jobs wait and when they will be done. */
	rest?: ComponentChildren;
}) {
	const { tenant, queue, now, pause, held_by: held } = of;
	const who = link ? <a href={tenantHref(queue, tenant)}><bdi>{tenant}</bdi></a> : <b><bdi>{tenant}</bdi></b>;
	const paused = pause && <>is {pause.tried ? 'held back' : 'paused'} {pausedBy(pause, now)}</>;
	if (of.waiting === 0) return <p class="sentence">{paused ? <>{who}’s {queue} {paused}; no jobs are waiting.</> : <>{who} has no jobs waiting in {queue}.</>}</p>;
	let why: ComponentChildren = 'is held by no limit';
	if (of.unserved) why = <>waits: <b>{of.unserved}</b>;</>;
	else if (paused) why = <>{paused};</>;
	else if (opens && time(opens) > time(now)) why = <>waits for its send window, which opens at <b>{clock(time(opens), time(now))}</b></>;
	else if (full) why = <>waits for a permit of {limit(full)}, all of which are in use</>;
	else if (held) {
		const next = held.next ? time(held.next) - time(now) : NaN;
		why = <>is held by {limit(held)}{Number.isNaN(next) ? null : next <= 0 ? ', next slot now' : <>, next slot in <b class="nowrap">{span(next)}</b></>}</>;
	}
	return (
		<p class="sentence">
			{who}’s {queue} {why}{of.unserved || paused ? ' ' : ', '}
			{rest ?? <><b>{num(of.waiting)}</b> waiting{!of.unserved && <>, <DoneAt at={of.drains_at} now={now} confidence={of.confidence} /></>}</>}
		</p>
	);
}

const limit = (h: Hold) => <>limit <q><bdi>{h.limit}</bdi></q> (<span class="nowrap">{h.rule}</span>)</>;
