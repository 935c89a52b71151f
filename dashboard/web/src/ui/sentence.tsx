import type { ComponentChildren } from 'preact';
import { clock, num, span, time } from '../format';
import type { Hold, Outlook, Pause } from '../types';
import { tenantHref } from './name';

/** When something is done, in words: "done at 14:12". */
export function DoneAt({ at, now, sure }: { at?: string | undefined; now: string; sure: string }) {
	if (!at) return <>not known when done</>;
	const t = time(at), n = time(now);
	if (t <= n + 1) return <>done now</>;
	return <>done at {sure === 'rough' && 'about '}<time class="key" dateTime={at}>{clock(t, n)}</time></>;
}

/** Until when something is paused or held back, and why. An operator's reason begins with the name. */
export function pausedBy(p: Pause, now: string) {
	const until = p.probing ? 'while one job tries it' : p.tried && time(p.until) <= time(now) ? 'until the next job tries it' : `until ${p.until ? clock(time(p.until), time(now)) : 'somebody resumes'}`;
	if (p.tried) return <>{until}: <bdi>{p.reason}</bdi></>;
	const [who, why] = p.by === 'operator' ? p.reason.split(/: (.*)/s) : ['the provider', p.reason];
	return <>by <bdi>{who}</bdi> {until}: <bdi>{why}</bdi></>;
}

/** Whether a pause holds all of a queue. */
export const ofAll = (p: Pause): boolean => !p.tenant && !p.kind && !p.endpoint;

/** What a pause holds back, as the subject of a sentence. */
export const pausedWhat = (p: Pause, queue: string) =>
	p.endpoint ? <>endpoint <bdi>{p.endpoint}</bdi>{p.tenant && <> of <bdi>{p.tenant}</bdi></>}</>
	: p.tenant ? <><bdi>{p.tenant}</bdi>’s {p.kind ?? queue}</> : p.kind ? <>jobs of kind {p.kind} in {queue}</> : <>all of {queue}</>;

/**
 * The sentence that this page is there for: whom which limit holds, when the
 * next one goes, how many wait and when they are through.
 */
export function Sentence({ of, link, opens, full, rest }: {
	of: Omit<Outlook, 'text' | 'rate_per_second'>; link?: boolean; opens?: string | undefined;
	/** A limit of calls at once that has no permit left. */
	full?: Hold | undefined;
	/** Instead of how many wait and when they are through. */
	rest?: ComponentChildren;
}) {
	const { tenant, queue, now, pause, held_by: held } = of;
	const who = link ? <a href={tenantHref(queue, tenant)}><bdi>{tenant}</bdi></a> : <b><bdi>{tenant}</bdi></b>;
	const paused = pause && <>is {pause.tried ? 'held back' : 'paused'} {pausedBy(pause, now)}</>;
	if (of.waiting === 0) return <p class="sentence">{paused ? <>{who}’s {queue} {paused}; nothing waits.</> : <>Nothing of {who} waits in {queue}.</>}</p>;
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
			{rest ?? <><b>{num(of.waiting)}</b> waiting, <DoneAt at={of.drains_at} now={now} sure={of.sure} /></>}
		</p>
	);
}

const limit = (h: Hold) => <>limit <q><bdi>{h.limit}</bdi></q> (<span class="nowrap">{h.rule}</span>)</>;
