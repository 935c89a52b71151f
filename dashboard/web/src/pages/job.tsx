import { useEffect, useState } from 'preact/hooks';
import { did, follows, tallyText, type Verb } from '../actions';
import { ApiError, send } from '../api';
import { shown } from '../exact';
import { clock, num, precise, relative, sentenceCase, span, time } from '../format';
import { useResource } from '../hooks';
import { tick } from '../live';
import { href } from '../router';
import { isAdmin, mayChange } from '../session';
import type { Job, JobEvent, Tally } from '../types';
import { confirmChange } from '../ui/dialog';
import { At, Card } from '../ui/card';
import { Badge, Icon, type IconName, type Tone } from '../ui/icon';
import { TenantLink } from '../ui/name';
import { JobSentence } from '../ui/jobsentence';
import { EmptyState, Loaded } from '../ui/states';
import { say } from '../ui/toast';
import { Text, bytes } from '../ui/text';

const readJob = (json: string): Job => ({ ...JSON.parse(json), payload: shown(json, 'payload'), result: shown(json, 'result') });

/** One job: its state and the reason for it, its history and its payload. */
export function JobPage({ queue, id }: { queue: string; id: string }) {
	const [gone, setGone] = useState(false);
	const { error, ...job } = useResource<Job>(['queues', queue, 'jobs', id], undefined, gone ? 0 : 2, readJob);
	useEffect(() => {
		if (error instanceof ApiError && error.status === 404) setGone(true);
	}, [error]);
	if (gone) return <EmptyState title="Job not found" icon="idle">This job never existed or has been deleted. Completed jobs are deleted at once, unless they have a retention; jobs with a key have one by default.</EmptyState>;
	return <Loaded of={{ ...job, error }} lines={8}>{(j) => <View j={j} />}</Loaded>;
}

/** The badges of outcomes, and of the states of jobs that have not ended. */
const badges: Record<string, [text: string, tone: Tone, icon?: IconName]> = {
	waiting: ['Waiting', 'busy'],
	retry: ['Waiting to retry', 'warn', 'wait'],
	pending: ['Sending', 'good', 'wait'],
	active: ['Sending', 'good', 'wait'],
	done: ['Done', 'good'],
	archived: ['Failed', 'bad'],
	crashed: ['Crashed', 'bad'],
	expired: ['Expired', 'bad', 'wait'],
	unknown: ['Unknown', 'bad', 'wait'],
	cancelled: ['Cancelled', 'quiet', 'bad'],
};

/** Whether a worker holds the job until its slot. */
const held = (j: Job) => (j.state === 'active' || j.state === 'pending') && j.until != null && time(j.until) > time(j.now);

function badge(j: Job): [text: string, tone: Tone, icon?: IconName] {
	const state = j.outcome ?? j.state;
	if (held(j)) return ['About to be sent', 'busy'];
	if (state === 'retry' && j.until) return [`Retry at ${clock(time(j.until), time(j.now))}`, 'warn', 'wait'];
	if (state === 'archived' && j.attempt >= j.max_attempts) return ['Failed; no attempts left', 'bad'];
	return badges[state] ?? [sentenceCase(state), 'quiet', 'wait'];
}

function View({ j }: { j: Job }) {
	const [text, tone, icon] = badge(j);
	return (
		<div class="stack">
			<section class="card" aria-label="State">
				<header><Badge tone={tone} icon={icon}>{text}</Badge><Verbs j={j} /></header>
				<JobSentence j={j} />
				{j.error && j.outcome !== 'done' && <p class="answer-line"><span class="hint">{j.state === 'retry' ? 'Last answer' : 'Reason'}</span> <bdi>{j.error}</bdi></p>}
			</section>
			<div class="grid wide-left">
				<Card title="History"><Timeline j={j} /></Card>
				<Card title="Details"><Facts j={j} /></Card>
			</div>
			<Card title="Payload" end={<span class="hint end">{bytes(j.payload_bytes)}</span>}>
				{j.locked ? <p class="hint">It cannot be shown: it is {j.locked}.</p> : <Text of={j.payload} label="Payload" />}
				{j.payload_truncated && <p class="hint">Truncated for display. The handler receives the full payload.</p>}
			</Card>
			{j.result !== undefined && <Card title="Result"><Text of={j.result} label="Result" /></Card>}
		</div>
	);
}

function ask(verb: Verb, { queue, id }: Job): void {
	const path = ['queues', queue, 'jobs', id];
	confirmChange({
		title: `${name(verb)} this job`, verb: `${name(verb)} the job`, danger: verb !== 'retry', consequence: <p>{follows[verb]}</p>,
		act: async (reason) => {
			const tally = await (verb === 'delete' ? send<Tally>('DELETE', path, { reason }) : send<Tally>('POST', [...path, verb], { reason }));
			say(tally.jobs > 0 ? tallyText(did[verb], tally) : 'Nothing changed: the job changed its state in the meantime', tally.jobs === 0);
		},
	});
}

const name = (verb: Verb) => sentenceCase(verb);

/** The actions for the job's state, or why there are none. */
function Verbs({ j }: { j: Job }) {
	if (!mayChange.value) return null;
	const hint = (text: string) => <span class="hint">{text}</span>;
	const offer = (verb: Verb) => <button type="button" class={verb === 'cancel' || verb === 'delete' ? 'risky' : ''} onClick={() => ask(verb, j)}>{verb === 'run' ? 'Run now' : name(verb)}…</button>;
	let offered;
	switch (j.state) {
		case 'waiting': case 'scheduled': case 'retry':
			offered = <>{j.pause ? hint('Paused: resume it before running it now') : isAdmin.value && offer('run')}{offer('cancel')}</>;
			break;
		case 'pending': case 'active':
			offered = hint('Held by a worker: too late to change');
			break;
		case 'archived':
			offered = <>{offer('retry')}{offer('delete')}</>;
	}
	return <div class="end verbs">{offered}</div>;
}

const events: Record<string, [text: string, icon: IconName, tone: Tone]> = {
	enqueued: ['Enqueued', 'idle', 'quiet'],
	released: ['Released for its slot', 'hold', 'busy'],
	called: ['Call made', 'next', 'busy'],
	answered: ['Answered', 'ok', 'good'],
	paused: ['Provider asked for a pause', 'pause', 'warn'],
	parked: ['Waiting in its lane again', 'wait', 'quiet'],
	retry: ['Waiting to retry', 'wait', 'warn'],
	recovered: ['Recovered: its worker died', 'warn', 'warn'],
	operator: ['Changed by an operator', 'idle', 'busy'],
	dropped: ['Some events were not kept', 'more', 'quiet'],
	ended: ['Ended', 'bad', 'bad'],
};

const answers: Record<string, [text: string, icon: IconName, tone: Tone]> = {
	ok: ['Accepted', 'ok', 'good'],
	throttled: ['Rate-limited (429)', 'pause', 'warn'],
	retryable: ['Failed, can be retried', 'warn', 'warn'],
	postponed: ['Postponed', 'wait', 'warn'],
	permanent: ['Failed permanently', 'bad', 'bad'],
	unknown: ['Outcome unknown: it may have been accepted', 'warn', 'bad'],
};

function Timeline({ j }: { j: Job }) {
	const list = j.timeline ?? [], now = time(j.now), next = j.expected_at;
	if (list.length === 0) return <p class="hint">{j.enqueued_at ? <>Enqueued at <At at={j.enqueued_at} now={now} />; no events since.</> : 'No history was kept for this job.'}</p>;
	return (
		<ol class="timeline">
			{list.map((e, i) => <Moment key={`${e.at} ${i}`} e={e} before={list[i - 1]} now={now} />)}
			{next && time(next) > now && <li class="next quiet"><Icon name="wait" /><div><b>Expected</b> at {j.confidence === 'rough' && 'about '}<At at={next} now={now} /> <small>{relative(time(next), now)}</small></div></li>}
		</ol>
	);
}

function Moment({ e, before, now }: { e: JobEvent; before: JobEvent | undefined; now: number }) {
	const [text, icon, tone] = (e.answer && answers[e.answer]) || (e.what === 'ended' && e.detail?.startsWith('done') && ['Done', 'ok', 'good'] as const)
		|| events[e.what] || [sentenceCase(e.what), 'idle', 'quiet'] as const;
	const at = time(e.at), waited = before ? at - time(before.at) : 0;
	return (
		<li class={tone}>
			<Icon name={icon} />
			<div>
				<b>{text}</b>
				{e.limit && <>{e.what === 'released' ? ', held until then by' : ' for'} <q><bdi>{e.limit}</bdi></q></>}
				{e.until && <> until <At at={e.until} now={now} /></>}
				{e.what === 'called' && e.attempt && <span class="hint"> attempt {e.attempt}</span>}
				{e.detail && <p class="detail"><bdi>{e.detail}</bdi></p>}
			</div>
			<div class="when"><time dateTime={e.at}>{Math.abs(now - at) > 72_000_000 ? clock(at, now) : precise(at)}</time>{waited >= 1 && <small>{span(waited)} later</small>}</div>
		</li>
	);
}

function Facts({ j }: { j: Job }) {
	const now = tick.value;
	const at = (text: string | undefined) => text && <><At at={text} now={now} /> <small>{relative(time(text), now)}</small></>;
	const pairs = (all: Record<string, string | number> | undefined) => {
		const list = Object.entries(all ?? {});
		return list.length > 0 && <ul>{list.map(([name, value]) => <li key={name}><bdi>{name}</bdi>: <bdi>{typeof value === 'number' ? num(value) : value}</bdi></li>)}</ul>;
	};
	const facts: Record<string, preact.ComponentChildren> = {
		Tenant: <TenantLink queue={j.queue} tenant={j.tenant} />,
		Kind: <bdi>{j.kind}</bdi>,
		Queue: <a href={href('queues', j.queue)}><bdi>{j.queue}</bdi></a>,
		Attempt: `${num(j.attempt)} of ${num(j.max_attempts)}`,
		Priority: sentenceCase(j.priority),
		Enqueued: at(j.enqueued_at),
		Deadline: at(j.deadline),
		Cost: pairs({ calls: j.cost, ...j.costs }),
		Retention: j.retention_seconds > 0 && `${span(j.retention_seconds * 1000)} after completion`,
		Attributes: pairs(j.attributes),
		Headers: pairs(j.headers),
		Job: <code><bdi>{j.id}</bdi></code>,
	};
	return <dl class="facts">{Object.entries(facts).map(([name, value]) => value && <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>;
}
