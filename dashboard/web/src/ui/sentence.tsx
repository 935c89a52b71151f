import { clock, num, span, time } from '../format';
import type { Outlook, Pause } from '../types';
import { tenantHref } from './name';

/** When something is done, in words: "done at 14:12". */
export function DoneAt({ at, now, sure }: { at?: string | undefined; now: string; sure: string }) {
	if (!at) return <>not known when done</>;
	const t = time(at), n = time(now);
	if (t <= n + 1) return <>done now</>;
	return <>done at {sure === 'rough' && 'about '}<time class="key" dateTime={at}>{clock(t, n)}</time></>;
}

export const pauseUntil = (p: Pause, now: string): string => (p.until ? `until ${clock(time(p.until), time(now))}` : 'until somebody resumes');

/** What a pause holds back, as the subject of a sentence. */
export const pausedWhat = (p: Pause, queue: string) =>
	p.tenant ? <><bdi>{p.tenant}</bdi>’s {queue}</> : p.kind ? <>jobs of kind {p.kind} in {queue}</> : <>all of {queue}</>;

/**
 * The sentence that this page is there for: whom which limit holds, when the
 * next one goes, how many wait and when they are through.
 */
export function Sentence({ of, pauses, link, opens }: { of: Outlook; pauses?: Pause[] | null | undefined; link?: boolean; opens?: string | undefined }) {
	const { tenant, queue, now, held_by: held } = of;
	const who = link ? <a href={tenantHref(queue, tenant)}><bdi>{tenant}</bdi></a> : <b><bdi>{tenant}</bdi></b>;
	const pause = pauses?.find((p) => !p.tenant || p.tenant === tenant);
	if (of.waiting === 0) {
		return pause
			? <p class="sentence">{who}’s {queue} is paused by <bdi>{pause.by}</bdi> {pauseUntil(pause, now)}; nothing waits.</p>
			: <p class="sentence">Nothing of {who} waits in {queue}.</p>;
	}
	const waiting = <><b>{num(of.waiting)}</b> waiting</>;
	const done = <DoneAt at={of.drains_at} now={now} sure={of.sure} />;
	if (pause) {
		return <p class="sentence">{who}’s {queue} is paused by <bdi>{pause.by}</bdi> {pauseUntil(pause, now)} (<bdi>{pause.reason}</bdi>), {waiting}, {done}</p>;
	}
	if (opens && time(opens) > time(now)) {
		return <p class="sentence">{who}’s {queue} waits for its send window, which opens at <b>{clock(time(opens), time(now))}</b>, {waiting}, {done}</p>;
	}
	if (!held) return <p class="sentence">{who}’s {queue} is held by no limit, {waiting}, {done}</p>;
	const next = held.next ? time(held.next) - time(now) : NaN;
	return (
		<p class="sentence">
			{who}’s {queue} is held by limit <q><bdi>{held.limit}</bdi></q> (<span class="nowrap">{held.rule}</span>),{' '}
			{Number.isNaN(next) ? null : next <= 0 ? <>next slot now, </> : <>next slot in <b class="nowrap">{span(next)}</b>, </>}
			{waiting}, {done}
		</p>
	);
}
